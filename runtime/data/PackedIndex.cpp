#include "runtime/data/PackedIndex.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/IndexFields.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {

static constexpr std::string_view packedFormat = "tessera-packed";
static constexpr uint64_t packedVersion = 1;
static constexpr std::size_t maxIndexBytes = 64 << 20;
static constexpr const char *rebuildAdvice =
    "write the folder again with `tessera data chat`";
static constexpr std::array<std::string_view, 3> objectives = {
    "sft", "preference", "label"};

std::string_view nameOf(PackedObjective objective) {
  return objectives[std::size_t(objective)];
}

static void parseObjective(IndexFields &fields, PackedIndex &index) {
  const std::string name = fields.text("objective");
  auto found = std::find(objectives.begin(), objectives.end(), name);
  if (found == objectives.end())
    return fields.fail("objective", "must be sft, preference or label");
  index.objective = PackedObjective(found - objectives.begin());
}

static Status parseSources(const JsonValue::Array &array,
                           const std::string &where, PackedIndex &index) {
  for (const JsonValue &object : array) {
    IndexFields fields(
        object, fmt::format("{}: source {}", where, index.sources.size()),
        rebuildAdvice);
    PackedIndex::Source source{fields.text("file"), fields.number("weight"),
                               fields.integer("documents"),
                               fields.integer("tokens")};
    if (!(source.weight >= 0 && std::isfinite(source.weight)))
      fields.fail("weight", "must not be negative");
    TESSERA_RETURN_IF_ERROR(std::move(fields.status));
    index.sources.push_back(std::move(source));
  }
  return Status::success();
}

static Status parseShards(const JsonValue::Array &array,
                          const std::string &where, PackedIndex &index) {
  uint64_t rows = 0, documents = 0, tokens = 0;
  for (const JsonValue &object : array) {
    IndexFields fields(object,
                       fmt::format("{}: shard {}", where, index.shards.size()),
                       rebuildAdvice);
    PackedIndex::Shard shard{fields.fileName("file"), fields.integer("rows"),
                             fields.integer("documents"),
                             fields.integer("tokens")};
    // Sums below 2^62 cannot wrap while each term is below it.
    for (uint64_t each :
         {shard.rows, shard.documents, shard.tokens, rows, documents, tokens})
      if (each >> 62)
        fields.fail("tokens", "is too large");
    TESSERA_RETURN_IF_ERROR(std::move(fields.status));
    rows += shard.rows;
    documents += shard.documents;
    tokens += shard.tokens;
    index.shards.push_back(std::move(shard));
  }
  if (rows != index.rows || documents != index.documents ||
      tokens != index.tokens)
    return Status::error("{}: the shards add up to {} rows, {} documents and "
                         "{} tokens, but the index says {}, {} and {}; {}",
                         where, rows, documents, tokens, index.rows,
                         index.documents, index.tokens, rebuildAdvice);
  return Status::success();
}

static void checkRanges(IndexFields &fields, const PackedIndex &index) {
  if (index.sequence == 0 || index.sequence > maxPackedSequence)
    fields.fail("sequence", "must be 1 to 16777216");
  if (index.vocabSize == 0 || index.vocabSize > maxVocabSize)
    fields.fail("vocab_size", "must be 1 to 2147483648");
  if (index.paddingToken >= index.vocabSize)
    fields.fail("padding_token", "must be below vocab_size");
  if (index.supervisedTokens > index.tokens)
    fields.fail("supervised_tokens", "must not exceed tokens");
}

StatusOr<PackedIndex> parsePackedIndex(std::string_view json,
                                       const std::string &where) {
  StatusOr<JsonValue> root = JsonValue::parse(json, where);
  if (!root.ok())
    return root.status();
  const JsonValue &object = *root;
  IndexFields fields(object, where, rebuildAdvice);
  if (fields.text("format") != packedFormat)
    fields.fail("format", "must be \"tessera-packed\"");
  if (fields.integer("version") != packedVersion)
    fields.fail("version", "must be 1, the version this program reads");
  PackedIndex index;
  parseObjective(fields, index);
  index.sequence = fields.integer("sequence");
  index.vocabSize = fields.integer("vocab_size");
  index.tokenizerHash = fields.hash("tokenizer_hash");
  index.templateHash = fields.hash("template_hash");
  index.rows = fields.integer("rows");
  index.documents = fields.integer("documents");
  index.tokens = fields.integer("tokens");
  index.supervisedTokens = fields.integer("supervised_tokens");
  index.paddingToken = fields.integer("padding_token");
  index.turns = fields.integer("turns");
  index.unendedTurns = fields.integer("unended_turns");
  index.truncated = fields.integer("truncated");
  index.skipped = fields.integer("skipped");
  for (const char *list : {"sources", "shards"})
    if (!object[list].isArray())
      fields.fail(list, "must be an array");
  checkRanges(fields, index);
  TESSERA_RETURN_IF_ERROR(std::move(fields.status));
  TESSERA_RETURN_IF_ERROR(
      parseSources(object["sources"].elements(), where, index));
  TESSERA_RETURN_IF_ERROR(
      parseShards(object["shards"].elements(), where, index));
  return index;
}

static nlohmann::ordered_json toJson(const PackedIndex &index) {
  using Json = nlohmann::ordered_json;
  Json json = {{"format", packedFormat},
               {"version", packedVersion},
               {"objective", nameOf(index.objective)},
               {"sequence", index.sequence},
               {"vocab_size", index.vocabSize},
               {"tokenizer_hash", fmt::format("{:016x}", index.tokenizerHash)},
               {"template_hash", fmt::format("{:016x}", index.templateHash)},
               {"rows", index.rows},
               {"documents", index.documents},
               {"tokens", index.tokens},
               {"supervised_tokens", index.supervisedTokens},
               {"efficiency", index.efficiency()},
               {"padding_token", index.paddingToken},
               {"turns", index.turns},
               {"unended_turns", index.unendedTurns},
               {"truncated", index.truncated},
               {"skipped", index.skipped},
               {"sources", Json::array()},
               {"shards", Json::array()}};
  for (const PackedIndex::Source &each : index.sources)
    json["sources"].push_back({{"file", each.file},
                               {"weight", each.weight},
                               {"documents", each.documents},
                               {"tokens", each.tokens}});
  for (const PackedIndex::Shard &each : index.shards)
    json["shards"].push_back({{"file", each.file},
                              {"rows", each.rows},
                              {"documents", each.documents},
                              {"tokens", each.tokens}});
  return json;
}

Status writePackedIndex(const PackedIndex &index, const std::string &folder) {
  using Json = nlohmann::ordered_json;
  return replaceFile(
      systemFiles(), folder, "index.json",
      toJson(index).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

StatusOr<PackedIndex> readPackedIndex(const std::string &folder) {
  const std::string path = folder + "/index.json";
  StatusOr<std::string> text = readFile(path, maxIndexBytes);
  if (!text.ok())
    return Status::error("{}; a folder of packed rows is made by `tessera data "
                         "chat`",
                         text.message());
  return parsePackedIndex(*text, path);
}

bool isPackedFolder(const std::string &folder) {
  const std::string path = folder + "/index.json";
  StatusOr<std::string> text = readFile(path, maxIndexBytes);
  if (!text.ok())
    return false;
  StatusOr<JsonValue> root = JsonValue::parse(*text, path);
  std::string_view format;
  return root.ok() && (*root)["format"].get(format) && format == packedFormat;
}

} // namespace tessera
