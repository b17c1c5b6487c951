#include "runtime/data/chat/ChatCorpus.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/data/chat/ExampleReader.h"
#include "runtime/data/chat/Mismatch.h"
#include "runtime/support/Hash.h"
#include "runtime/support/SplitMix64.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <thread>

namespace tessera::chat {

static constexpr size_t batchLines = 1024, batchBytes = 16 << 20;
static constexpr int64_t maxTokenizerBytes = 512 << 20;
/// After so many documents without an end-of-turn token none is to come.
static constexpr uint64_t unendedLimit = 1000;

StatusOr<ChatSource> parseChatSource(const std::string &text) {
  ChatSource source{text, 1};
  const size_t colon = text.rfind(':');
  if (colon == text.npos || text.find('/', colon) != text.npos)
    return source;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(begin, end, source.weight);
  if (error != std::errc() || rest != end)
    return ChatSource{text, 1}; // a colon of the name
  if (!(source.weight > 0 && source.weight <= maxSourceWeight))
    return Status::error("{}: the weight must be above 0 and at most {}", text,
                         maxSourceWeight);
  source.path.resize(colon);
  return source;
}

namespace {
/// What one line became.
struct EncodedLine {
  EncodedExample documents;
  std::optional<EncodedDocument> mismatched; ///< of an answer with a label
  PackedObjective objective = PackedObjective::Sft;
  bool isConversation = false;
  uint64_t truncated = 0;
  Status status = Status::success();
};

class ChatPacker {
public:
  ChatPacker(const ChatCorpusOptions &options, const ChatFormat &format,
             const std::string &folder, PackedIndex &index)
      : options(options), index(index), writer(folder, index, options.packing) {
    for (unsigned i = 0; i < std::max(1u, options.threads); ++i)
      encoders.emplace_back(format, options.encoding);
    for (const ChatSource &source : options.inputs)
      index.sources.push_back({source.path, source.weight, 0, 0});
  }

  Status run();

private:
  Status findWeights();
  Status readSource(size_t number, uint64_t pass);
  bool isWanted(size_t source, uint64_t line, uint64_t pass) const;
  void encodeBatch(const std::string &path);
  void mismatchBatch();
  void encodeLine(ChatEncoder &encoder, const std::string &path, size_t number);
  Status fit(EncodedLine &line) const;
  Status take(EncodedLine &line, size_t source, uint64_t number, uint64_t pass);
  Status checkEnds(bool atEnd) const;

  const ChatCorpusOptions &options;
  PackedIndex &index;
  PackedWriter writer;
  std::vector<ChatEncoder> encoders;
  std::vector<ExampleLine> lines; ///< of the batch
  std::vector<EncodedLine> encoded;
  uint64_t examples = 0, documents = 0, ends = 0;
};
} // namespace

/// Applies the temperature: n_i^(1/T) ÷ n_i, and 1 for the largest source.
Status ChatPacker::findWeights() {
  if (options.temperature == 0)
    return Status::success();
  std::vector<double> counts;
  for (const ChatSource &source : options.inputs) {
    StatusOr<uint64_t> count = countLines(source.path);
    if (!count.ok())
      return count.status();
    counts.push_back(double(std::max<uint64_t>(*count, 1)));
  }
  const double most = *std::max_element(counts.begin(), counts.end());
  for (size_t i = 0; i < counts.size(); ++i) {
    double &weight = index.sources[i].weight;
    weight *= std::pow(counts[i] / most, 1 / options.temperature - 1);
    if (weight > maxSourceWeight)
      return Status::error("{}: at temperature {} each of its examples would "
                           "occur {:.0f} times, more than {}; lower "
                           "--temperature or leave the file out",
                           index.sources[i].file, options.temperature, weight,
                           maxSourceWeight);
  }
  return Status::success();
}

/// Whether a line occurs a `pass` + first time.
bool ChatPacker::isWanted(size_t source, uint64_t line, uint64_t pass) const {
  const double rest = index.sources[source].weight - double(pass);
  if (rest >= 1 || rest <= 0)
    return rest >= 1;
  const uint64_t draw = mix64(mix64(options.seed + source * kGoldenGamma) ^
                              (line * kGoldenGamma + pass));
  return double(draw >> 11) * 0x1p-53 < rest;
}

/// Truncates documents that are too long for a row, or says so.
Status ChatPacker::fit(EncodedLine &line) const {
  const uint64_t most = index.sequence / line.documents.size();
  uint64_t total = 0;
  for (const EncodedDocument &each : line.documents)
    total += each.tokens.size();
  if (total <= index.sequence)
    return Status::success();
  if (!options.truncates)
    return Status::error("{} tokens do not fit into a row of {}; raise "
                         "--sequence, or remove the end with --truncate",
                         total, index.sequence);
  for (EncodedDocument &each : line.documents) {
    if (each.tokens.size() <= most)
      continue;
    each.tokens.resize(most);
    each.supervised.resize(most);
    ++line.truncated;
    if (most < 2 ||
        std::count(each.supervised.begin() + 1, each.supervised.end(), 1) == 0)
      return Status::error("has no token to learn within the first {}; raise "
                           "--sequence",
                           most);
  }
  if (line.documents.size() == 2 &&
      line.documents[0].tokens == line.documents[1].tokens)
    return Status::error("\"chosen\" and \"rejected\" are equal up to token "
                         "{}; raise --sequence",
                         most);
  return Status::success();
}

void ChatPacker::encodeLine(ChatEncoder &encoder, const std::string &path,
                            size_t number) {
  EncodedLine &to = encoded[number];
  const ExampleLine &line = lines[number];
  const std::string where = fmt::format("{}:{}", path, line.number);
  StatusOr<Example> example = parseExample(line.text, where);
  if (!example.ok()) {
    to.status = example.status();
    return;
  }
  to.objective = example->objective;
  to.isConversation = example->isConversation;
  StatusOr<EncodedExample> documents = encoder.encode(*example);
  Status status = documents.ok() ? Status::success() : documents.status();
  if (status.ok()) {
    to.documents = documents.take();
    status = fit(to);
    for (EncodedDocument &each : to.documents)
      each.keptEnds = encoder.countEnds(each);
  }
  if (!status.ok())
    to.status = Status::error("{}: {}", where, status.message());
}

void ChatPacker::encodeBatch(const std::string &path) {
  encoded.assign(lines.size(), {});
  std::atomic<size_t> next = 0;
  auto work = [&](ChatEncoder &encoder) {
    for (size_t i = next++; i < lines.size(); i = next++)
      encodeLine(encoder, path, i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(encoders.size(), lines.size()); ++i)
    threads.emplace_back([&, i] { work(encoders[i]); });
  work(encoders[0]);
  for (std::thread &thread : threads)
    thread.join();
  mismatchBatch();
}

/// Each prompt gets the answer of the batch's next line, the last one that of
/// the first: all answers occur once. The batches do not depend on the threads.
void ChatPacker::mismatchBatch() {
  std::vector<EncodedLine *> labelled;
  for (EncodedLine &line : encoded)
    if (line.status.ok() && line.objective == PackedObjective::Label)
      labelled.push_back(&line);
  if (labelled.size() < 2) // only its own answer is left
    return;
  for (size_t i = 0; i < labelled.size(); ++i)
    labelled[i]->mismatched = chat::mismatched(
        labelled[i]->documents[0],
        labelled[(i + 1) % labelled.size()]->documents[0], index.sequence);
}

Status ChatPacker::checkEnds(bool atEnd) const {
  if (ends > 0 || (!atEnd && documents < unendedLimit))
    return Status::success();
  return Status::error(
      "in none of {} documents an end-of-turn token is supervised, so that the "
      "model would not learn to stop; say with --end-of-turn TOKEN which one "
      "the template prints after an answer, or correct the template",
      documents);
}

/// Counts a line, and gives it to the writer.
Status ChatPacker::take(EncodedLine &line, size_t source, uint64_t number,
                        uint64_t pass) {
  if (line.status.ok() && examples > 0 && line.objective != index.objective)
    line.status = Status::error(
        "{}:{}: is of objective {}, the lines before it are of {}; pack each "
        "into a folder of its own",
        index.sources[source].file, number, nameOf(line.objective),
        nameOf(index.objective));
  if (!line.status.ok()) {
    if (!options.skipsBad)
      return Status::error(
          "{}; correct the line, or leave out such lines with --skip-bad",
          line.status.message());
    if (pass == 0) { // or it was counted before
      ++index.skipped;
      if (options.onSkipped)
        options.onSkipped(line.status.message());
    }
    return Status::success();
  }
  index.objective = line.objective;
  ++examples;
  for (const EncodedDocument &each : line.documents) {
    ++documents;
    ends += each.keptEnds;
    index.turns += each.turns;
    index.unendedTurns += each.turns - std::min(each.turns, each.ends);
  }
  index.truncated += line.truncated;
  TESSERA_RETURN_IF_ERROR(
      writer.add(std::move(line.documents), uint16_t(source), number));
  if (line.mismatched) {
    EncodedExample alone;
    alone.push_back(std::move(*line.mismatched));
    TESSERA_RETURN_IF_ERROR(
        writer.add(std::move(alone), uint16_t(source), number));
  }
  return checkEnds(/*atEnd=*/false);
}

Status ChatPacker::readSource(size_t number, uint64_t pass) {
  const std::string &path = options.inputs[number].path;
  StatusOr<ExampleReader> reader = ExampleReader::open(path);
  if (!reader.ok())
    return reader.status();
  for (reader->next(batchLines, batchBytes, lines); !lines.empty();
       reader->next(batchLines, batchBytes, lines)) {
    std::erase_if(lines, [&](const ExampleLine &line) {
      return !isWanted(number, line.number, pass);
    });
    encodeBatch(path);
    for (size_t i = 0; i < lines.size(); ++i)
      TESSERA_RETURN_IF_ERROR(take(encoded[i], number, lines[i].number, pass));
  }
  return Status::success();
}

Status ChatPacker::run() {
  TESSERA_RETURN_IF_ERROR(findWeights());
  double most = 0;
  for (const PackedIndex::Source &source : index.sources)
    most = std::max(most, source.weight);
  for (uint64_t pass = 0; double(pass) < most; ++pass)
    for (size_t i = 0; i < options.inputs.size(); ++i)
      if (double(pass) < index.sources[i].weight)
        TESSERA_RETURN_IF_ERROR(readSource(i, pass));
  if (examples == 0)
    return Status::error("{} has no example{}", options.inputs[0].path,
                         index.skipped > 0 ? " that is not bad"
                         : most < 1        ? ", or its weight leaves none"
                                           : "");
  TESSERA_RETURN_IF_ERROR(checkEnds(/*atEnd=*/true));
  return writer.finish();
}

static Status checkOptions(const ChatCorpusOptions &options) {
  if (options.inputs.empty() || options.inputs.size() > maxSources)
    return Status::error("{} input files were given, not 1 to {}",
                         options.inputs.size(), maxSources);
  if (options.sequence < 2 || options.sequence > maxPackedSequence)
    return Status::error("a row must have 2 to {} tokens, got {}",
                         maxPackedSequence, options.sequence);
  if (options.temperature != 0 && !(options.temperature >= 0.1))
    return Status::error("the temperature must be at least 0.1");
  for (const ChatSource &source : options.inputs)
    if (auto reader = ExampleReader::open(source.path); !reader.ok())
      return reader.status();
  return checkNewDirectory(options.out);
}

/// The folder's tokenizer, template and end tokens; `json` is tokenizer.json.
static StatusOr<ChatFormat> loadFormat(const ChatCorpusOptions &options,
                                       std::string &json) {
  const ModelFiles files(options.tokenizer);
  constexpr std::string_view name = "tokenizer.json";
  StatusOr<std::string> text = files.read(name, maxTokenizerBytes);
  if (!text.ok())
    return text.status();
  json = text.take();
  auto tokenizer = tokenizer::Tokenizer::parse(json, files.where(name));
  if (!tokenizer.ok())
    return tokenizer.status();
  return loadChatFormat(files, tokenizer.take(), options.source,
                        options.endOfTurn);
}

StatusOr<PackedIndex> packChats(const ChatCorpusOptions &options) {
  TESSERA_RETURN_IF_ERROR(checkOptions(options));
  std::string json;
  StatusOr<ChatFormat> format = loadFormat(options, json);
  if (!format.ok())
    return format.status();
  PackedIndex index;
  index.sequence = options.sequence;
  index.vocabSize = format->tokenizer.vocabSize();
  index.tokenizerHash = format->tokenizer.hash();
  index.paddingToken = format->end.padding;
  if (format->source)
    index.templateHash =
        hash64(std::as_bytes(std::span(format->source->source())));
  auto fill = [&](const std::string &folder) {
    TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/tokenizer.json", json));
    if (format->source)
      TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/chat_template.jinja",
                                           format->source->source()));
    return ChatPacker(options, *format, folder, index).run();
  };
  TESSERA_RETURN_IF_ERROR(makeNewDirectory(options.out, fill));
  return index;
}

} // namespace tessera::chat
