#include "runtime/data/TokenSplit.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/IndexFields.h"
#include "runtime/data/Json.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace tessera {

static constexpr const char *indexName = "index.json";
static constexpr std::string_view indexFormat = "tessera-tokens";
static constexpr uint64_t indexVersion = 1;
static constexpr size_t maxIndexBytes = 64 << 20;
static constexpr const char *rebuildAdvice =
    "write the folder again with `tessera data tokenize`";

static Status parseShards(const JsonValue::Array &array,
                          const std::string &where, SplitIndex &index) {
  uint64_t tokens = 0, documents = 0;
  for (const JsonValue &object : array) {
    std::string entry = fmt::format("{}: shard {}", where, index.shards.size());
    if (!object.isObject())
      return Status::error("{}: must be an object", entry);
    IndexFields fields(object, entry, rebuildAdvice);
    SplitIndex::Shard shard{fields.fileName("file"), fields.integer("tokens"),
                            fields.integer("documents")};
    // Sums below 2^62 cannot wrap while each term is below it.
    if (shard.tokens >> 62 || shard.documents >> 62 || tokens >> 62 ||
        documents >> 62)
      fields.fail("tokens", "is too large");
    TESSERA_RETURN_IF_ERROR(std::move(fields.status));
    tokens += shard.tokens;
    documents += shard.documents;
    index.shards.push_back(std::move(shard));
  }
  if (tokens != index.tokens || documents != index.documents)
    return Status::error("{}: the shards add up to {} tokens and {} documents, "
                         "but the split says {} and {}; write the folder again "
                         "with `tessera data tokenize`",
                         where, tokens, documents, index.tokens,
                         index.documents);
  return Status::success();
}

StatusOr<SplitIndex> parseSplitIndex(std::string_view json,
                                     const std::string &where) {
  StatusOr<JsonValue> root = JsonValue::parse(json, where);
  if (!root.ok())
    return root.status();
  const JsonValue &object = *root;
  if (!object.isObject())
    return Status::error("{}: must be a JSON object", where);
  IndexFields fields(object, where, rebuildAdvice);
  if (fields.text("format") != indexFormat)
    fields.fail("format", "must be \"tessera-tokens\"");
  if (fields.integer("version") != indexVersion)
    fields.fail("version", "must be 1, the version this program reads");
  SplitIndex index;
  index.vocabSize = fields.integer("vocab_size");
  index.tokenizerHash = fields.hash("tokenizer_hash");
  index.tokens = fields.integer("tokens");
  index.documents = fields.integer("documents");
  index.textBytes = fields.integer("text_bytes");
  uint64_t separator = fields.integer("separator");
  index.unigramEntropy = fields.get<double>("unigram_entropy", "a number");
  const JsonValue &shards = object["shards"];
  if (!shards.isArray())
    fields.fail("shards", "must be an array");
  if (index.vocabSize == 0 || index.vocabSize > maxVocabSize)
    fields.fail("vocab_size", "must be 1 to 2147483648");
  if (separator >= index.vocabSize)
    fields.fail("separator", "must be below vocab_size");
  if (!(index.unigramEntropy >= 0 && std::isfinite(index.unigramEntropy)))
    fields.fail("unigram_entropy", "must not be negative");
  TESSERA_RETURN_IF_ERROR(std::move(fields.status));
  index.separator = static_cast<uint32_t>(separator);
  TESSERA_RETURN_IF_ERROR(parseShards(shards.elements(), where, index));
  return index;
}

Status writeSplitIndex(const SplitIndex &index, const std::string &folder) {
  nlohmann::ordered_json json = {
      {"format", indexFormat},
      {"version", indexVersion},
      {"vocab_size", index.vocabSize},
      {"tokenizer_hash", fmt::format("{:016x}", index.tokenizerHash)},
      {"tokens", index.tokens},
      {"documents", index.documents},
      {"text_bytes", index.textBytes},
      {"separator", index.separator},
      {"unigram_entropy", index.unigramEntropy},
      {"shards", nlohmann::ordered_json::array()}};
  for (const SplitIndex::Shard &shard : index.shards) {
    if (!isPlainName(shard.file))
      return Status::error("{}: shard file name \"{}\" is not a plain name",
                           folder, shard.file);
    json["shards"].push_back({{"file", shard.file},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents}});
  }
  using Json = nlohmann::ordered_json;
  return replaceFile(systemFiles(), folder, indexName,
                     json.dump(2, ' ', false, Json::error_handler_t::replace) +
                         "\n");
}

StatusOr<TokenSplit> TokenSplit::open(const std::string &folder) {
  std::string indexPath = folder + "/" + indexName;
  StatusOr<std::string> text = readFile(indexPath, maxIndexBytes);
  if (!text.ok())
    return Status::error("{}; a folder of tokens is made by `tessera data "
                         "tokenize`",
                         text.message());
  StatusOr<SplitIndex> index = parseSplitIndex(*text, indexPath);
  if (!index.ok())
    return index.status();
  TokenSplit split{index.take(), {}};
  for (const SplitIndex::Shard &listed : split.index.shards) {
    StatusOr<TokenShard> shard = TokenShard::open(folder + "/" + listed.file);
    if (!shard.ok())
      return shard.status();
    const ShardHeader &head = shard->header();
    if (head.tokenCount != listed.tokens ||
        head.documentCount != listed.documents ||
        head.vocabSize != split.index.vocabSize ||
        head.tokenizerHash != split.index.tokenizerHash)
      return Status::error(
          "{}: {} tokens, {} documents, vocabulary {}, tokenizer {:016x}; but "
          "{} says {}, {}, {}, {:016x}; write the folder again with `tessera "
          "data tokenize`",
          shard->path(), head.tokenCount, head.documentCount, head.vocabSize,
          head.tokenizerHash, indexPath, listed.tokens, listed.documents,
          split.index.vocabSize, split.index.tokenizerHash);
    split.shards.push_back(shard.take());
  }
  return split;
}

} // namespace tessera
