// Error messages for a command line that does not parse. Header-only, so that
// only the libraries that include it need CLI11.
#pragma once
#include "runtime/support/Text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// What CLI11 says; words that were not expected in the order in which they
/// stand, with what may have been meant. `app` is that whose words they are.
inline std::string commandLineError(const CLI::App &app,
                                    const CLI::Error &error) {
  // A subcommand's error has its name in place of one of its own.
  if (error.get_exit_code() != int(CLI::ExitCodes::ExtrasError))
    return error.what();
  std::vector<std::string> names, shown;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  auto hint = [&](const std::string &flag) {
    return flag == "--kept-weights" ? " was renamed to '--weight-cache'"
                                    : suggestion(flag, known);
  };
  for (const std::string &word : app.remaining())
    shown.push_back(quote(word) + (word.starts_with("--")
                                       ? hint(word.substr(0, word.find('=')))
                                       : ""));
  return fmt::format("not expected: {}", fmt::join(shown, ", "));
}

/// As `app.parse`, but "--name=" has an empty value, where CLI11 would take the
/// next word for it: a script's --api-key=$KEY without KEY is to be refused,
/// not to make a key of what follows.
inline void parseCommandLine(CLI::App &app, int argc, const char *const *argv) {
  std::vector<std::string> words;
  bool hasOptions = true;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    hasOptions &= word != "--";
    const bool isEmpty = i > 0 && hasOptions && word.starts_with("--") &&
                         word.find('=') == word.size() - 1;
    words.emplace_back(isEmpty ? word.substr(0, word.size() - 1) : word);
    if (isEmpty)
      words.emplace_back();
  }
  std::vector<const char *> pointers;
  for (const std::string &word : words)
    pointers.push_back(word.c_str());
  app.parse(int(pointers.size()), pointers.data());
}

} // namespace tessera
