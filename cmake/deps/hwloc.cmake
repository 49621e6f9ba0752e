strata_pkg(HWLOC hwloc libhwloc-dev)
