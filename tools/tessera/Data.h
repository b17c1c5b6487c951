// `tessera data …`: tokenizers and token shards. Runtime only, no LLVM.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

/// Adds the subcommand `data` with `tokenizer` and `tokenize`. A command that
/// fails prints one line to stderr and throws CLI::RuntimeError(1).
void addDataCommands(CLI::App &app);

} // namespace tessera
