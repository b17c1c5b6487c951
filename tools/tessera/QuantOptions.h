// How weights, keys and values are kept, as the commands that compile programs
// ask for it.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera {

/// Adds --quant, --quant-group and --quant-zeros, which are inference.quant,
/// inference.group and inference.zeros of the recipe, to a command that has
/// --set; `set` gains "inference.quant=int4" and must outlive the command.
void addQuantOptions(CLI::App &command, std::vector<std::string> &set);

/// Adds --kv, which is inference.kv of the recipe, in the same way.
void addKvOption(CLI::App &command, std::vector<std::string> &set);

} // namespace tessera
