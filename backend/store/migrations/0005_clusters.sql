-- Which points of a map lie close together (HDBSCAN of the drawn points).
CREATE TABLE clusters (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    method VARCHAR NOT NULL,             -- tsne, umap, pca
    dimensions INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    cluster INTEGER,                     -- from 0, the largest first; NULL in none
    strength DOUBLE NOT NULL,            -- how firmly it belongs, 0 to 1
    build_id VARCHAR NOT NULL
);
