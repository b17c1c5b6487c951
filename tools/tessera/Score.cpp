// tessera score: what a reward model gives answers.
#include "compiler/api/RewardProgram.h"
#include "runtime/data/chat/ExampleReader.h"
#include "runtime/rl/AnswerScorer.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderOptions.h"
#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <optional>

using namespace tessera;

namespace {

struct ScoreArguments : EncoderArguments {
  std::string input; ///< a file; empty: standard input
  bool parsesSpecial = false;
};

/// The lines of a file, or of standard input.
class LineSource {
public:
  Status open(const std::string &path);
  /// As of ExampleReader.
  void next(std::size_t most, std::vector<chat::ExampleLine> &lines);
  std::string name = "standard input";

private:
  std::optional<chat::ExampleReader> file; ///< none: standard input
  std::vector<std::string> held;           ///< the lines of the last next()
  uint64_t number = 0;
};

struct ScoreTotals {
  uint64_t answers = 0, tokens = 0, pairs = 0, right = 0;
  double margins = 0;
};

/// A line of the input, encoded.
struct EncodedLine {
  uint64_t number = 0;
  PackedObjective objective = PackedObjective::Sft;
  std::size_t first = 0, count = 0; ///< of the batch's answers
};

class Scoring {
public:
  explicit Scoring(rl::AnswerScorer &scorer) : scorer(scorer) {}
  Status run(LineSource &source, std::size_t mostLines);

  ScoreTotals totals;

private:
  Status encode(const chat::ExampleLine &line, const std::string &name);
  Status printScores();

  rl::AnswerScorer &scorer;
  std::vector<EncodedLine> lines;
  chat::EncodedExample answers; ///< of all lines of a batch
};

} // namespace

Status LineSource::open(const std::string &path) {
  if (path.empty())
    return Status::success();
  auto opened = chat::ExampleReader::open(path);
  if (!opened.ok())
    return opened.status();
  file.emplace(opened.take());
  name = path;
  return Status::success();
}

void LineSource::next(std::size_t most, std::vector<chat::ExampleLine> &lines) {
  constexpr std::size_t kBytes = std::size_t(16) << 20;
  if (file)
    return file->next(most, kBytes, lines);
  lines.clear();
  held.clear();
  held.reserve(most); // views of the strings stay valid
  std::string line;
  while (held.size() < most && std::getline(std::cin, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos)
      continue;
    held.push_back(std::move(line));
    lines.push_back({held.back(), number});
  }
}

Status Scoring::encode(const chat::ExampleLine &line, const std::string &name) {
  const std::string where = fmt::format("{}:{}", name, line.number);
  auto example = chat::parseExample(line.text, where);
  if (!example.ok())
    return example.status();
  auto encoded = scorer.encode(*example);
  if (!encoded.ok())
    return Status::error("{}: {}", where, encoded.message());
  lines.push_back(
      {line.number, example->objective, answers.size(), encoded->size()});
  for (chat::EncodedDocument &each : *encoded) {
    totals.tokens += each.tokens.size();
    answers.push_back(std::move(each));
  }
  return Status::success();
}

Status Scoring::printScores() {
  auto scores = scorer.score(answers);
  if (!scores.ok())
    return scores.status();
  totals.answers += answers.size();
  for (const EncodedLine &line : lines) {
    const float first = (*scores)[line.first];
    if (line.objective != PackedObjective::Preference) {
      fmt::print("{{\"line\":{},\"tokens\":{},\"score\":{}}}\n", line.number,
                 answers[line.first].tokens.size(), first);
      continue;
    }
    const float second = (*scores)[line.first + 1];
    ++totals.pairs;
    totals.right += first > second;
    totals.margins += double(first) - double(second);
    fmt::print("{{\"line\":{},\"chosen\":{},\"rejected\":{}}}\n", line.number,
               first, second);
  }
  lines.clear();
  answers.clear();
  return Status::success();
}

Status Scoring::run(LineSource &source, std::size_t mostLines) {
  std::vector<chat::ExampleLine> read;
  while (source.next(mostLines, read), !read.empty()) {
    for (const chat::ExampleLine &line : read)
      TESSERA_RETURN_IF_ERROR(encode(line, source.name));
    TESSERA_RETURN_IF_ERROR(printScores());
  }
  if (totals.answers == 0)
    return Status::error("{} has no line", source.name);
  return Status::success();
}

static Status scoreAnswers(ScoreArguments &arguments) {
  auto source = arguments.find();
  if (!source.ok())
    return source.status();
  LineSource lines;
  TESSERA_RETURN_IF_ERROR(lines.open(arguments.input));
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = program.name();
  options.device = arguments.programs.decoder.device;
  options.threads = arguments.threads;
  auto opened = openRewardModel(*source, arguments.programs, options);
  if (!opened.ok())
    return opened.status();
  EmbedPrograms &programs = *(*opened)->programs;
  chat::ChatEncoderOptions encoding;
  encoding.parsesSpecial = arguments.parsesSpecial;
  encoding.rendering.now = std::time(nullptr);
  rl::AnswerScorer scorer(programs, (*opened)->format, encoding);
  Scoring scoring(scorer);
  auto begin = std::chrono::steady_clock::now();
  // Enough answers that some have equal lengths and fill a batch.
  TESSERA_RETURN_IF_ERROR(
      scoring.run(lines, std::size_t(8 * programs.shape().batch)));
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const ScoreTotals &totals = scoring.totals;
  arguments.say(fmt::format("{}: {} answers of {} tokens in {:.2f} s",
                            arguments.place, totals.answers, totals.tokens,
                            took.count()));
  if (totals.pairs > 0)
    arguments.say(fmt::format("{} pairs: accuracy {:.4f}, mean margin {:.4g}",
                              totals.pairs,
                              double(totals.right) / double(totals.pairs),
                              totals.margins / double(totals.pairs)));
  return Status::success();
}

void tessera::addScoreCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<ScoreArguments>();
  CLI::App *command = app.add_subcommand(
      "score", "Print a reward model's scores of answers, one JSON object per "
               "line, and its accuracy on preference pairs");
  command
      ->add_option("DIR|FILE", arguments->place,
                   "Hugging Face directory of a reward model (a sequence "
                   "classifier of one label, such as tessera export writes of "
                   "task: reward), or packaged model")
      ->required();
  command
      ->add_option("--input", arguments->input,
                   ".jsonl file; a line has \"messages\", or \"prompt\" with "
                   "\"completion\" or with \"chosen\" and \"rejected\" "
                   "(default: standard input)")
      ->type_name("FILE.jsonl");
  command->add_flag("--parse-special", arguments->parsesSpecial,
                    "special tokens that are written out in a message are "
                    "those tokens (default: an error)");
  addEncoderOptions(*command, *arguments);
  command->callback([arguments, &invocation] {
    arguments->finish("score");
    if (Status status = scoreAnswers(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
