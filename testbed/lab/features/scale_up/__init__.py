"""Scale-up domains: the links of GPUs beside the fabric, as times alone or with packets."""
