-- Version 2, last part. Code of version 1 knows neither pauses nor gates.
UPDATE {schema}.schema_version SET version = 2, min_reader = 2;
