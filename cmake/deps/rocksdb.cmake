find_package(RocksDB CONFIG QUIET)
if(NOT RocksDB_FOUND)
  strata_missing("RocksDB" librocksdb-dev)
endif()
