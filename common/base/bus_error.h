// Says why a process ends when a page of a mapped file cannot be read: without it the last word is
// "Bus error", and nobody looks at the file.
#pragma once

namespace strata {

// From now on SIGBUS writes a line with the file's name to standard error before it ends the
// process as usual.
void ExplainBusErrors();

}  // namespace strata
