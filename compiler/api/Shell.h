// Command lines that a user can paste into a shell.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

/// The argument as one word of a POSIX shell: as is where that is safe,
/// otherwise in single quotes.
std::string shellQuoted(std::string_view argument);

} // namespace tessera
