-- Version 4, last part. Code of an earlier version takes away what an observer waits for.
UPDATE {schema}.schema_version SET version = 4, min_reader = 4;
