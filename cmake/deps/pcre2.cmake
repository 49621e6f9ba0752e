strata_pkg(PCRE2 libpcre2-8 libpcre2-dev)
