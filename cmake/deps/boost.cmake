# 1.81 is the first Debian 12 version with Beast's awaitable support and Boost.JSON; Debian's default
# Boost is 1.74.
set(Boost_NO_WARN_NEW_VERSIONS ON)
find_package(Boost 1.81 QUIET COMPONENTS json)
if(NOT Boost_FOUND)
  strata_missing("Boost >= 1.81" "libboost1.81-dev libboost-json1.81-dev")
endif()
