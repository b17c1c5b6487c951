// Options for quantized weights and the KV cache, shared by the commands that
// compile programs.
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

/// Likewise adds --kv, which is inference.kv of the recipe.
void addKvOption(CLI::App &command, std::vector<std::string> &set);

} // namespace tessera
