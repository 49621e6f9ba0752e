strata_pkg(URING liburing liburing-dev)
