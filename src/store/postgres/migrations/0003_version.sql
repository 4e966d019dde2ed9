-- Version 3, last part. It only adds: code of version 2 works beside it, and mints nothing.
UPDATE {schema}.schema_version SET version = 3;
