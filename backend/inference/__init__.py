"""What traces show of their source, and how sure that is."""

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Floating = npt.NDArray[np.floating]
Ints = npt.NDArray[np.intp]
