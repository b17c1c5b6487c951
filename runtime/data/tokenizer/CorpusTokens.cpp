#include "runtime/data/tokenizer/CorpusTokens.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/Documents.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

namespace tessera::tokenizer {

namespace fs = std::filesystem;

static constexpr size_t batchLimit = 16 << 20; // bytes of text
static constexpr size_t maxTokenizerBytes = 512 << 20;

double unigramEntropy(std::span<const uint64_t> counts) {
  double total = 0, sum = 0;
  for (uint64_t count : counts) {
    double n = static_cast<double>(count);
    total += n;
    if (n > 0)
      sum += n * std::log(n);
  }
  return total > 0 ? std::max(0.0, std::log(total) - sum / total) : 0;
}

namespace {
/// Encodes the documents of one split and writes its shards.
class SplitWriter {
public:
  SplitWriter(const Tokenizer &tokenizer, const CorpusOptions &options,
              std::string folder, uint32_t separator)
      : options(options), folder(std::move(folder)),
        counts(tokenizer.vocabSize()) {
    index.vocabSize = tokenizer.vocabSize();
    index.tokenizerHash = tokenizer.hash();
    index.separator = separator;
    for (unsigned i = 0; i < std::max(1u, options.threads); ++i)
      encoders.emplace_back(tokenizer);
  }

  Status add(std::string document);
  StatusOr<SplitIndex> finish();

private:
  void encodeBatch();
  Status flushBatch();
  Status writeShard(std::span<const uint32_t> shard);

  const CorpusOptions &options;
  std::string folder;
  SplitIndex index;
  std::vector<uint64_t> counts; // of each token
  std::vector<Encoder> encoders;
  std::vector<std::string> batch;
  std::vector<std::vector<uint32_t>> encoded; // of each document of the batch
  size_t batchBytes = 0;
  std::vector<uint32_t> tokens; // not yet written
};
} // namespace

Status SplitWriter::add(std::string document) {
  batchBytes += document.size();
  batch.push_back(std::move(document));
  return batchBytes >= batchLimit ? flushBatch() : Status::success();
}

void SplitWriter::encodeBatch() {
  encoded.assign(batch.size(), {});
  std::atomic<size_t> next = 0;
  auto work = [&](Encoder &encoder) {
    for (size_t i = next++; i < batch.size(); i = next++)
      encoder.encode(batch[i], SpecialText::Plain, encoded[i]);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(encoders.size(), batch.size()); ++i)
    threads.emplace_back([&, i] { work(encoders[i]); });
  work(encoders[0]);
  for (std::thread &thread : threads)
    thread.join();
}

Status SplitWriter::flushBatch() {
  encodeBatch();
  for (std::vector<uint32_t> &document : encoded) {
    document.push_back(index.separator);
    for (uint32_t token : document)
      ++counts[token];
    tokens.insert(tokens.end(), document.begin(), document.end());
  }
  index.documents += batch.size();
  index.textBytes += batchBytes;
  batch.clear();
  batchBytes = 0;
  size_t written = 0;
  for (; tokens.size() - written >= options.shardTokens;
       written += options.shardTokens)
    TESSERA_RETURN_IF_ERROR(
        writeShard(std::span(tokens).subspan(written, options.shardTokens)));
  tokens.erase(tokens.begin(),
               tokens.begin() + static_cast<std::ptrdiff_t>(written));
  return Status::success();
}

Status SplitWriter::writeShard(std::span<const uint32_t> shard) {
  // Text never encodes to the separator, so that it counts the documents.
  uint64_t documents = static_cast<uint64_t>(
      std::count(shard.begin(), shard.end(), index.separator));
  std::string name = fmt::format("shard-{:05}.tok", index.shards.size());
  ShardContents contents{shard, documents, index.vocabSize,
                         index.tokenizerHash};
  TESSERA_RETURN_IF_ERROR(writeTokenShard(folder, name, contents));
  index.tokens += shard.size();
  index.shards.push_back({name, shard.size(), documents});
  return Status::success();
}

StatusOr<SplitIndex> SplitWriter::finish() {
  TESSERA_RETURN_IF_ERROR(flushBatch());
  if (!tokens.empty() || index.shards.empty())
    TESSERA_RETURN_IF_ERROR(writeShard(tokens));
  index.unigramEntropy = unigramEntropy(counts);
  TESSERA_RETURN_IF_ERROR(writeSplitIndex(index, folder));
  return std::move(index);
}

static StatusOr<uint32_t> findSeparator(const Tokenizer &tokenizer,
                                        const CorpusOptions &options) {
  std::optional<uint32_t> id = options.separator
                                   ? tokenizer.addedToken(*options.separator)
                                   : tokenizer.documentEnd();
  if (id && !tokenizer.token(*id).special)
    return Status::error("{}: the separator {} is not a special token, so that "
                         "text could contain it",
                         options.tokenizerPath, tokenizer.token(*id).bytes);
  if (id)
    return *id;
  if (options.separator)
    return Status::error("{}: has no added token \"{}\" to separate documents",
                         options.tokenizerPath, *options.separator);
  return Status::error("{}: has neither <|endoftext|> nor <|end_of_text|>; say "
                       "with --separator which token ends a document",
                       options.tokenizerPath);
}

/// Makes the folder of a split empty and without an index.
static Status prepareSplit(const std::string &folder, bool replace) {
  std::error_code code;
  std::string indexPath = folder + "/index.json";
  if (fs::exists(indexPath, code) && !replace)
    return Status::error("{}: holds tokens already; name another folder, or "
                         "replace them with --force",
                         folder);
  fs::create_directories(folder, code);
  if (code)
    return Status::error("{}: cannot make the folder: {}", folder,
                         code.message());
  // The index first: a folder that has one is whole.
  TESSERA_RETURN_IF_ERROR(systemFiles().removeTree(indexPath));
  std::vector<std::string> old;
  for (fs::directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code))
    if (at->path().extension() == ".tok")
      old.push_back(at->path().string());
  for (const std::string &path : old)
    TESSERA_RETURN_IF_ERROR(systemFiles().removeTree(path));
  return Status::success();
}

static StatusOr<SplitIndex> writeSplit(const Tokenizer &tokenizer,
                                       const CorpusOptions &options,
                                       const std::vector<std::string> &inputs,
                                       const std::string &folder,
                                       uint32_t separator) {
  SplitWriter writer(tokenizer, options, folder, separator);
  TESSERA_RETURN_IF_ERROR(forEachDocument(inputs, [&](std::string document) {
    return writer.add(std::move(document));
  }));
  return writer.finish();
}

StatusOr<CorpusResult> tokenizeCorpus(const CorpusOptions &options) {
  if (options.shardTokens == 0)
    return Status::error("a shard must hold at least 1 token");
  StatusOr<std::string> json =
      readFile(options.tokenizerPath, maxTokenizerBytes);
  if (!json.ok())
    return json.status();
  StatusOr<Tokenizer> tokenizer =
      Tokenizer::parse(*json, options.tokenizerPath);
  if (!tokenizer.ok())
    return tokenizer.status();
  StatusOr<uint32_t> separator = findSeparator(*tokenizer, options);
  if (!separator.ok())
    return separator.status();

  // Before tokens that are there make room.
  TESSERA_RETURN_IF_ERROR(checkInputs(options.trainInputs));
  TESSERA_RETURN_IF_ERROR(checkInputs(options.evalInputs));
  std::string train = options.out + "/train", eval = options.out + "/eval";
  TESSERA_RETURN_IF_ERROR(prepareSplit(train, options.replace));
  // An old eval split must not remain next to the new train split.
  std::error_code code;
  if (!options.evalInputs.empty() || fs::exists(eval, code))
    TESSERA_RETURN_IF_ERROR(prepareSplit(eval, options.replace));
  TESSERA_RETURN_IF_ERROR(
      replaceFile(systemFiles(), options.out, "tokenizer.json", *json));

  CorpusResult result;
  StatusOr<SplitIndex> index =
      writeSplit(*tokenizer, options, options.trainInputs, train, *separator);
  if (!index.ok())
    return index.status();
  result.train = index.take();
  if (options.evalInputs.empty())
    return result;
  index = writeSplit(*tokenizer, options, options.evalInputs, eval, *separator);
  if (!index.ok())
    return index.status();
  result.eval = index.take();
  return result;
}

} // namespace tessera::tokenizer
