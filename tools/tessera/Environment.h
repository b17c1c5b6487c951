// Who gave an option its value. A flag comes before the environment, and what
// the environment says is looked at where the command that runs has that option
// and nobody gave the flag: a wrong value harms no other command.
#pragma once
#include <span>
#include <string>

namespace CLI {
class App;
class Error;
class Option;
} // namespace CLI

namespace tessera {

/// What was typed, behind the name of the program.
using Words = std::span<const std::string>;

/// Takes the environment's names from the options of all subcommands but the
/// one that `words` begin with. CLI11 would read values for all of them.
void forgetOtherEnvironments(CLI::App &app, Words words);

/// Whether the option has a value and none of `words` gave it.
bool isFromEnvironment(const CLI::Option &option, Words words);

/// "TESSERA_TOP_K in the environment: " where the error is about the value of
/// an option of `command` that the environment gave, else nothing.
std::string environmentOf(const CLI::App &command, const CLI::Error &error,
                          Words words);

} // namespace tessera
