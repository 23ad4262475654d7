"""Transfers as jobs of fio at the server of a storage target, whatever protocol the two speak."""
