-- Six decimals tell all pairs of a thousand sources apart, and are packed into a third of the room of a quotient.
UPDATE neighbors SET percentile = round(percentile, 6);
