-- Six decimals are more than fingerprints in half precision bear, and are packed into two thirds of the room of twelve.
UPDATE neighbors SET cosine = round(cosine, 6);
