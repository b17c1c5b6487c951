// tessera data chat: conversations and preference pairs, to packed rows.
#include "runtime/data/chat/ChatCorpus.h"
#include "tools/tessera/Commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <memory>
#include <thread>

namespace tessera {

using namespace chat;

namespace {
struct ChatArguments {
  ChatCorpusOptions options;
  std::vector<std::string> inputs;
  std::string supervise = "all";
};
} // namespace

static constexpr uint64_t shownSkips = 10;

static void printSummary(const std::string &out, const PackedIndex &index) {
  fmt::print("{}: {} documents ({}), {} tokens, {} of them supervised, in {} "
             "rows of {}, {:.1f} % full\n",
             out, index.documents, nameOf(index.objective), index.tokens,
             index.supervisedTokens, index.rows, index.sequence,
             100 * index.efficiency());
  if (index.sources.size() > 1)
    for (const PackedIndex::Source &source : index.sources)
      fmt::print("  {}: weight {:.3g}, {} documents, {} tokens\n", source.file,
                 source.weight, source.documents, source.tokens);
  if (index.unendedTurns > 0)
    fmt::print("{} of {} turns of the assistant have no supervised end-of-turn "
               "token\n",
               index.unendedTurns, index.turns);
  if (index.truncated > 0)
    fmt::print("{} documents were truncated\n", index.truncated);
  if (index.skipped > 0)
    fmt::print("{} lines were skipped\n", index.skipped);
}

static Status packChats(ChatArguments &arguments) {
  ChatCorpusOptions &options = arguments.options;
  for (const std::string &input : arguments.inputs) {
    StatusOr<ChatSource> source = parseChatSource(input);
    if (!source.ok())
      return source.status();
    options.inputs.push_back(source.take());
  }
  if (arguments.supervise == "last")
    options.encoding.turns = SupervisedTurns::Last;
  // One time for all lines, so that a template's date does not change.
  options.encoding.rendering.now = std::time(nullptr);
  uint64_t skipped = 0;
  options.onSkipped = [&](const std::string &error) {
    if (++skipped <= shownSkips)
      fmt::print(stderr, "skipped: {}\n", error);
    else if (skipped == shownSkips + 1)
      fmt::print(stderr, "skipped: more lines, which are only counted\n");
  };
  StatusOr<PackedIndex> index = chat::packChats(options);
  if (!index.ok())
    return index.status();
  printSummary(options.out, *index);
  return Status::success();
}

static void addFormatOptions(CLI::App &command, ChatArguments &arguments) {
  ChatCorpusOptions &options = arguments.options;
  command
      .add_option("--tokenizer", options.tokenizer,
                  "model directory: tokenizer.json, its chat template and its "
                  "eos_token")
      ->required();
  command.add_option("--template", options.source,
                     "a chat template (Jinja) instead of the directory's");
  command
      .add_option("--supervise", arguments.supervise,
                  "which turns of the assistant are learned")
      ->check(CLI::IsMember({"all", "last"}))
      ->capture_default_str();
  command.add_option("--end-of-turn", options.endOfTurn,
                     "tokens that end an answer (default: eos_token of the "
                     "tokenizer and of the generation config)");
  command.add_flag("--parse-special", options.encoding.parsesSpecial,
                   "special tokens that are written out in a message are those "
                   "tokens (default: an error)");
}

static void addPackingOptions(CLI::App &command, ChatCorpusOptions &options) {
  command
      .add_option("--sequence", options.sequence,
                  "tokens of a row: the model's batch.sequence")
      ->capture_default_str();
  command.add_flag("--truncate", options.truncates,
                   "remove the end of what is longer than a row (default: an "
                   "error)");
  command.add_flag("--skip-bad", options.skipsBad,
                   "leave out bad lines (default: stop at the first)");
  command
      .add_option("--temperature", options.temperature,
                  "mix inputs of n lines in proportion to n^(1/T): 1 as they "
                  "are, above 1 with small ones repeated")
      ->check(CLI::Range(0.1, 1e6));
  command
      .add_option("--seed", options.seed,
                  "which examples of an input with a fractional weight occur "
                  "once more")
      ->capture_default_str();
  command
      .add_option("--window", options.packing.window,
                  "tokens that are read and then packed together")
      ->capture_default_str();
  command
      .add_option("--shard-tokens", options.packing.shardTokens,
                  "tokens per shard")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  command.add_option("--threads", options.threads, "threads that tokenize")
      ->capture_default_str();
}

void addDataChat(CLI::App &data, Invocation &invocation) {
  auto arguments = std::make_shared<ChatArguments>();
  CLI::App *command = data.add_subcommand(
      "chat", "Tokenize conversations or preference pairs and pack them into "
              "rows for fine-tuning");
  addFormatOptions(*command, *arguments);
  command
      ->add_option("--input", arguments->inputs,
                   ".jsonl files, FILE or FILE:WEIGHT; a line has "
                   "\"messages\", or \"prompt\" with \"completion\" or with "
                   "\"chosen\" and \"rejected\"")
      ->required();
  addPackingOptions(*command, arguments->options);
  command->add_option("-o,--out", arguments->options.out, "new folder to write")
      ->required();
  command->callback([arguments, &invocation] {
    if (Status status = packChats(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}

} // namespace tessera
