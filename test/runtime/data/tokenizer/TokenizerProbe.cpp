// What test/oracle/tokenizer_oracle.py talks to: encodes and decodes texts with
// the runtime's tokenizer, or trains one, so that the script can compare.
//
//   tokenizer-probe encode|encode-framed TOKENIZER_JSON < texts > results
//     texts: repeated {u32 length, bytes}; results: for each {u32 count,
//     u32 ids..., u32 length, decoded bytes}, little-endian
//   tokenizer-probe encode-pairs TOKENIZER_JSON MOST < texts > results
//     texts: as above, two for each result {u32 count, u32 ids..., u32 where
//     the second text begins}; MOST: ids of a pair, 0: any number
//   tokenizer-probe split REGEX < texts > results
//     results: for each {u32 count, u32 lengths of the matches and of what
//     stands between them, in bytes...}
//   tokenizer-probe train VOCAB MIN_FREQUENCY OUT_JSON < texts
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/Tokenizer.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace tessera;
using namespace tessera::tokenizer;

static bool readText(std::string &text) {
  uint32_t length = 0;
  if (std::fread(&length, sizeof(length), 1, stdin) != 1)
    return false;
  text.resize(length);
  return std::fread(text.data(), 1, length, stdin) == length;
}

static int fail(const Status &status) {
  fmt::print(stderr, "{}\n", status.message());
  return 1;
}

static bool writeBlock(const void *data, size_t count, size_t size) {
  uint32_t header = static_cast<uint32_t>(count);
  return std::fwrite(&header, sizeof(header), 1, stdout) == 1 &&
         std::fwrite(data, size, count, stdout) == count;
}

static int splitAll(const char *pattern) {
  StatusOr<Regex> regex = Regex::compile(pattern);
  if (!regex.ok())
    return fail(regex.status());
  for (std::string text; readText(text);) {
    std::vector<uint32_t> lengths;
    size_t at = 0;
    auto push = [&](size_t end) {
      if (end > at)
        lengths.push_back(static_cast<uint32_t>(end - at));
      at = end;
    };
    RegexScanner scanner(*regex, text);
    while (auto match = scanner.next()) {
      push(match->begin);
      push(match->end);
    }
    push(text.size());
    if (!writeBlock(lengths.data(), lengths.size(), sizeof(uint32_t)))
      return 1;
  }
  return 0;
}

static int encodeAll(const char *path, bool framed) {
  StatusOr<Tokenizer> tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok())
    return fail(tokenizer.status());
  Encoder encoder(*tokenizer);
  for (std::string text; readText(text);) {
    std::vector<uint32_t> ids =
        framed ? encoder.encodeFramed(text) : encoder.encode(text);
    std::string decoded = decode(*tokenizer, ids);
    if (!writeBlock(ids.data(), ids.size(), sizeof(uint32_t)) ||
        !writeBlock(decoded.data(), decoded.size(), 1))
      return 1;
  }
  return 0;
}

static int encodePairs(const char *path, size_t most) {
  StatusOr<Tokenizer> tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok())
    return fail(tokenizer.status());
  Encoder encoder(*tokenizer);
  for (std::string first, second; readText(first) && readText(second);) {
    StatusOr<TextPair> pair = encoder.framePair(
        encoder.encode(first), encoder.encode(second), most ? most : SIZE_MAX);
    if (!pair.ok())
      return fail(pair.status());
    std::vector<uint32_t> numbers = pair->ids;
    numbers.push_back(static_cast<uint32_t>(pair->secondBegins));
    if (!writeBlock(numbers.data(), numbers.size(), sizeof(uint32_t)))
      return 1;
  }
  return 0;
}

static int train(char **arguments) {
  TrainOptions options;
  options.vocabSize = static_cast<uint32_t>(std::atoi(arguments[0]));
  options.minFrequency = static_cast<uint64_t>(std::atoi(arguments[1]));
  WordCounter counter(options.pattern, /*threads=*/2);
  for (std::string text; readText(text);)
    counter.add(text);
  StatusOr<TrainedBpe> trained = trainBpe(counter.finish(), options);
  if (!trained.ok())
    return fail(trained.status());
  std::filesystem::path out = std::filesystem::absolute(arguments[2]);
  Status status = replaceFile(systemFiles(), out.parent_path(), out.filename(),
                              tokenizerJson(*trained));
  return status.ok() ? 0 : fail(status);
}

int main(int argc, char **argv) {
  std::string_view mode = argc > 1 ? argv[1] : "";
  if ((mode == "encode" || mode == "encode-framed") && argc == 3)
    return encodeAll(argv[2], mode == "encode-framed");
  if (mode == "encode-pairs" && argc == 4)
    return encodePairs(argv[2], static_cast<size_t>(std::atoi(argv[3])));
  if (mode == "split" && argc == 3)
    return splitAll(argv[2]);
  if (mode == "train" && argc == 5)
    return train(argv + 2);
  fmt::print(stderr,
             "usage: tokenizer-probe encode|encode-framed TOKENIZER_JSON\n"
             "       tokenizer-probe encode-pairs TOKENIZER_JSON MOST\n"
             "       tokenizer-probe split REGEX\n"
             "       tokenizer-probe train VOCAB MIN_FREQUENCY OUT\n");
  return 2;
}
