// Tells whether an option's value came from a flag or the environment. A flag
// takes precedence. An environment variable is read only if the running command
// has its option and the flag was not given, so that a wrong value affects no
// other command.
#pragma once
#include <span>
#include <string>

namespace CLI {
class App;
class Error;
class Option;
} // namespace CLI

namespace tessera {

/// The arguments after the program's name.
using Words = std::span<const std::string>;

/// Removes the environment names from the options of all subcommands except the
/// one that `words` begin with. CLI11 would read the variables of all of them.
void forgetOtherEnvironments(CLI::App &app, Words words);

/// Whether the option's value came from the environment, not from `words`.
bool isFromEnvironment(const CLI::Option &option, Words words);

/// "TESSERA_TOP_K in the environment: " if the error is about an option of
/// `command` whose value came from the environment, else empty.
std::string environmentOf(const CLI::App &command, const CLI::Error &error,
                          Words words);

} // namespace tessera
