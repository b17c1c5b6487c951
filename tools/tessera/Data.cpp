// tessera data: tokenizers and token shards.
#include "compiler/Files.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/CorpusTokens.h"
#include "runtime/data/tokenizer/Documents.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

namespace tessera {

using namespace tokenizer;

static constexpr const char *inputHelp =
    "folders of .txt and .jsonl files, .jsonl files (one {\"text\": ...} per "
    "line), or files of one document each";

static unsigned machineThreads() {
  return std::max(1u, std::thread::hardware_concurrency());
}

namespace {
struct TrainArguments {
  TrainOptions training;
  std::string pattern = "gpt2";
  std::vector<std::string> inputs;
  std::string out;
  unsigned threads = machineThreads();
};
} // namespace

static SplitPattern patternNamed(const std::string &name) {
  if (name == "llama3")
    return SplitPattern::Cl100k;
  return name == "qwen2" ? SplitPattern::Qwen2 : SplitPattern::Gpt2;
}

static Status trainTokenizer(TrainArguments &arguments) {
  // Checked before hours of counting.
  if (llvm::Error error = checkWritable(arguments.out))
    return Status::error("{}", llvm::toString(std::move(error)));
  arguments.training.pattern = patternNamed(arguments.pattern);
  auto start = std::chrono::steady_clock::now();
  WordCounter counter(arguments.training.pattern,
                      std::max(1u, arguments.threads));
  uint64_t documents = 0, bytes = 0;
  TESSERA_RETURN_IF_ERROR(
      forEachDocument(arguments.inputs, [&](std::string document) {
        ++documents;
        bytes += document.size();
        counter.add(std::move(document));
        return Status::success();
      }));
  StatusOr<TrainedBpe> trained = trainBpe(counter.finish(), arguments.training);
  if (!trained.ok())
    return trained.status();
  std::filesystem::path path = arguments.out;
  std::string folder =
      path.has_parent_path() ? path.parent_path().string() : ".";
  TESSERA_RETURN_IF_ERROR(replaceFile(systemFiles(), folder,
                                      path.filename().string(),
                                      tokenizerJson(*trained)));
  std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  fmt::print("{}: {} tokens, {} merges from {} documents, {:.2f} MB of text, "
             "in {:.1f} s\n",
             arguments.out, trained->tokens.size(), trained->merges.size(),
             documents, static_cast<double>(bytes) / 1e6, seconds.count());
  if (trained->tokens.size() < arguments.training.vocabSize)
    fmt::print("no more pairs occur {} times: the vocabulary has {} tokens "
               "instead of {}\n",
               arguments.training.minFrequency, trained->tokens.size(),
               arguments.training.vocabSize);
  return Status::success();
}

static void addTokenizerCommand(CLI::App &data, Invocation &invocation) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App *command = data.add_subcommand(
      "tokenizer", "Train a byte-level BPE tokenizer and write tokenizer.json");
  command->add_option("--input", arguments->inputs, inputHelp)->required();
  command
      ->add_option(
          "--vocab", arguments->training.vocabSize,
          "size of the vocabulary, including 256 bytes and the special tokens")
      ->capture_default_str();
  command
      ->add_option("--min-frequency", arguments->training.minFrequency,
                   "merge only pairs that occur at least this often")
      ->capture_default_str();
  command
      ->add_option("--special", arguments->training.specialTokens,
                   "special tokens; they get the first ids")
      ->capture_default_str();
  command
      ->add_option("--pattern", arguments->pattern,
                   "pre-tokenizer: how text is split before merging")
      ->check(CLI::IsMember({"gpt2", "llama3", "qwen2"}))
      ->capture_default_str();
  command
      ->add_option("--threads", arguments->threads,
                   "threads that read and count words")
      ->capture_default_str();
  command->add_option("-o,--out", arguments->out, "tokenizer.json to write")
      ->required();
  command->callback([arguments, &invocation] {
    if (Status status = trainTokenizer(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}

static void printSplit(const std::string &path, const SplitIndex &index) {
  fmt::print("{}: {} documents, {:.2f} MB of text, {} tokens in {} shards, "
             "{:.2f} bytes/token, unigram entropy {:.4f} nats/token\n",
             path, index.documents, static_cast<double>(index.textBytes) / 1e6,
             index.tokens, index.shards.size(),
             static_cast<double>(index.textBytes) /
                 static_cast<double>(std::max<uint64_t>(index.tokens, 1)),
             index.unigramEntropy);
}

static void addTokenizeCommand(CLI::App &data, Invocation &invocation) {
  auto options = std::make_shared<CorpusOptions>();
  options->threads = machineThreads();
  CLI::App *command = data.add_subcommand(
      "tokenize",
      "Tokenize text into token shards for training and evaluation");
  command->add_option("--tokenizer", options->tokenizerPath, "a tokenizer.json")
      ->required();
  command->add_option("--input", options->trainInputs, inputHelp)->required();
  command->add_option("--eval-input", options->evalInputs,
                      "documents of the eval split, as for training");
  command->add_option("--separator", options->separator,
                      "special token that ends a document (default: "
                      "<|endoftext|> or <|end_of_text|>)");
  command
      ->add_option("--shard-tokens", options->shardTokens, "tokens per shard")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads that tokenize")
      ->capture_default_str();
  command->add_flag("--force", options->replace,
                    "replace token shards already in the folder");
  command->add_option("-o,--out", options->out, "folder to write")->required();
  command->callback([options, &invocation] {
    StatusOr<CorpusResult> result = tokenizeCorpus(*options);
    if (!result.ok())
      return invocation.fail(result.message().c_str());
    printSplit(options->out + "/train", result->train);
    if (result->eval)
      printSplit(options->out + "/eval", *result->eval);
  });
}

void addDataCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *data =
      app.add_subcommand("data", "Train tokenizers, tokenize text and chats");
  data->require_subcommand(1);
  addTokenizerCommand(*data, invocation);
  addTokenizeCommand(*data, invocation);
  addDataChat(*data, invocation);
  addDataReference(*data, invocation);
  addDataTeacher(*data, invocation);
}

} // namespace tessera
