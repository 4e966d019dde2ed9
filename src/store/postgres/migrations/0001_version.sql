-- Version 1, last part.
INSERT INTO {schema}.schema_version (version, min_reader) VALUES (1, 1);
