-- Which process holds a claim, or left it in doubt: NULL for whoever ended well, and in rows of schema 1.
ALTER TABLE onceward_records ADD COLUMN holder BLOB;
