strata_pkg(XXHASH libxxhash libxxhash-dev)
