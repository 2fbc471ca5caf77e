"""Random calls for one tenant, each made in the database and in the model of tests/reference_model."""
