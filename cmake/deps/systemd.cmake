strata_pkg(SYSTEMD libsystemd libsystemd-dev)
