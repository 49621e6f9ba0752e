// Names for requests, carried through all daemons' logs.
#pragma once

#include <string>
#include <string_view>

namespace strata::gateway {

// `length` random characters of [0-9A-Za-z], unguessable enough for ids of answers and tool calls.
std::string RandomName(int length);

// "req-..." with random characters.
std::string NewRequestId();

// The client's id if it is short and plain text, else a new one.
std::string UsableRequestId(std::string_view from_client);

}  // namespace strata::gateway
