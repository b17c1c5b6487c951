#include "tools/tessera/Environment.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string_view>

using namespace tessera;

void tessera::forgetOtherEnvironments(CLI::App &app, Words words) {
  for (CLI::App *each : app.get_subcommands([](CLI::App *) { return true; })) {
    const bool isAsked = !words.empty() && each->get_name() == words.front();
    if (!isAsked)
      for (CLI::Option *option : each->get_options())
        option->envname("");
    forgetOtherEnvironments(*each, isAsked ? words.subspan(1) : Words());
  }
}

// Whether a word gives the option, as --top-k, --top-k=5 or -k5.
static bool gives(std::string_view word, const CLI::Option &option) {
  for (const std::string &name : option.get_lnames())
    if (std::string flag = "--" + name;
        word == flag || word.starts_with(flag + "="))
      return true;
  return std::ranges::any_of(option.get_snames(), [&](const auto &name) {
    return !word.starts_with("--") && word.starts_with("-" + name);
  });
}

bool tessera::isFromEnvironment(const CLI::Option &option, Words words) {
  const char *value = option.get_envname().empty()
                          ? nullptr
                          : std::getenv(option.get_envname().c_str());
  return value && *value && std::ranges::none_of(words, [&](const auto &word) {
           return gives(word, option);
         });
}

std::string tessera::environmentOf(const CLI::App &command,
                                   const CLI::Error &error, Words words) {
  const std::string message = error.what();
  for (const CLI::Option *option :
       command.get_options([](const CLI::Option *) { return true; })) {
    const std::string name = option->get_name();
    if (!message.starts_with(name + ":") &&
        message.find(": " + name + " =") == std::string::npos)
      continue;
    if (isFromEnvironment(*option, words))
      return option->get_envname() + " in the environment: ";
  }
  return {};
}
