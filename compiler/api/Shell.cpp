#include "compiler/api/Shell.h"

std::string tessera::shellQuoted(std::string_view argument) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyz"
                                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789_-./:=,+@%";
  if (!argument.empty() &&
      argument.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(argument);
  std::string text = "'";
  for (char c : argument)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}
