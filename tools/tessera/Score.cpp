// tessera score: what a reward model gives answers.
#include "compiler/api/RewardProgram.h"
#include "runtime/data/chat/ExampleReader.h"
#include "runtime/rl/AnswerScorer.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderOptions.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/StandardInput.h"
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
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
  Status next(std::size_t most, std::vector<chat::ExampleLine> &lines);
  std::string name = StandardInput::kName;

private:
  std::optional<chat::ExampleReader> file; ///< none: standard input
  StandardInput input;
  std::vector<std::string> held; ///< the lines of the last next()
};

struct ScoreTotals {
  uint64_t answers = 0, tokens = 0, pairs = 0, correct = 0;
  double margins = 0;
};

/// A line of the input, encoded.
struct EncodedLine {
  uint64_t number = 0;
  PackedObjective objective = PackedObjective::Sft;
  std::size_t first = 0; ///< of its answers in the batch
};

class Scoring {
public:
  explicit Scoring(rl::AnswerScorer &scorer) : scorer(scorer) {}
  Status run(LineSource &source, std::size_t mostLines);

  ScoreTotals totals;

private:
  Status encode(const chat::ExampleLine &line, const std::string &name);
  Status printScores(const std::string &name);
  Status print(const EncodedLine &line, std::span<const float> scores);

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

Status LineSource::next(std::size_t most,
                        std::vector<chat::ExampleLine> &lines) {
  constexpr std::size_t kBytes = std::size_t(16) << 20;
  lines.clear();
  if (file) {
    file->next(most, kBytes, lines);
    return Status::success();
  }
  held.clear();
  held.reserve(most); // views of the strings stay valid
  std::string line;
  for (std::size_t bytes = 0; held.size() < most && bytes < kBytes;) {
    auto read = input.next(line);
    if (!read.ok())
      return read.status();
    if (!*read)
      break;
    if (line.find_first_not_of(" \t\r") == line.npos)
      continue;
    bytes += line.size();
    held.push_back(std::move(line));
    lines.push_back({held.back(), input.number()});
  }
  return Status::success();
}

Status Scoring::encode(const chat::ExampleLine &line, const std::string &name) {
  const std::string where = fmt::format("{}:{}", name, line.number);
  auto example = chat::parseExample(line.text, where, chat::ExampleUse::Score);
  if (!example.ok())
    return example.status();
  auto encoded = scorer.encode(*example);
  if (!encoded.ok())
    return Status::error("{}: {}", where, encoded.message());
  lines.push_back({line.number, example->objective, answers.size()});
  for (chat::EncodedDocument &each : *encoded) {
    totals.tokens += each.tokens.size();
    answers.push_back(std::move(each));
  }
  return Status::success();
}

Status Scoring::print(const EncodedLine &line, std::span<const float> scores) {
  const bool isPair = line.objective == PackedObjective::Preference;
  const float first = scores[line.first];
  TESSERA_RETURN_IF_ERROR(rl::checkScore(first));
  if (!isPair) {
    fmt::print("{{\"line\":{},\"tokens\":{},\"score\":{}}}\n", line.number,
               answers[line.first].tokens.size(), first);
    return Status::success();
  }
  const float second = scores[line.first + 1];
  TESSERA_RETURN_IF_ERROR(rl::checkScore(second));
  ++totals.pairs;
  totals.correct += first > second;
  totals.margins += double(first) - double(second);
  fmt::print("{{\"line\":{},\"chosen\":{},\"rejected\":{}}}\n", line.number,
             first, second);
  return Status::success();
}

Status Scoring::printScores(const std::string &name) {
  auto scores = scorer.score(answers);
  if (!scores.ok())
    return Status::error("{}:{} to {}: {}", name, lines.front().number,
                         lines.back().number, scores.message());
  totals.answers += answers.size();
  for (const EncodedLine &line : lines)
    if (Status status = print(line, *scores); !status.ok())
      return Status::error("{}:{}: {}", name, line.number, status.message());
  std::fflush(stdout); // who waits for them may read a pipe
  lines.clear();
  answers.clear();
  return Status::success();
}

Status Scoring::run(LineSource &source, std::size_t mostLines) {
  std::vector<chat::ExampleLine> read;
  for (;;) {
    TESSERA_RETURN_IF_ERROR(source.next(mostLines, read));
    if (read.empty())
      break;
    for (const chat::ExampleLine &line : read)
      TESSERA_RETURN_IF_ERROR(encode(line, source.name));
    TESSERA_RETURN_IF_ERROR(printScores(source.name));
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
  auto options = arguments.runOptions(program);
  if (!options.ok())
    return options.status();
  auto opened = openRewardModel(*source, arguments.programs, *options);
  if (!opened.ok())
    return opened.status();
  EmbedPrograms &programs = *(*opened)->programs;
  chat::ChatEncoderOptions encoding;
  encoding.parsesSpecial = arguments.parsesSpecial;
  encoding.rendering.now = std::time(nullptr);
  rl::AnswerScorer scorer(
      programs, (*opened)->format, encoding,
      source->packaged
          ? "shorten them, or compile the model with a larger "
            "inference.context (tessera compile --set inference.context=N)"
          : fmt::format("shorten them, or set --set inference.context=N, up to "
                        "the model's {} positions",
                        source->spec.maxPositions));
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
  if (totals.pairs > 0) // a result, also with --quiet
    note(fmt::format("{} pairs: accuracy {:.4f}, mean margin {:.4g}",
                     totals.pairs,
                     double(totals.correct) / double(totals.pairs),
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
