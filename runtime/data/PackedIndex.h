// A folder of packed rows: its shards (PackedShard.h) and an index.json that
// lists them and says how they were made. The folder also has the
// tokenizer.json and, of conversations, the chat_template.jinja.
//
//   {"format": "tessera-packed", "version": 1, "objective": "sft",
//    "sequence": 2048, "vocab_size": 4096,
//    "tokenizer_hash": "00c5…16 hex digits", "template_hash": "…",
//    "rows": 12, "documents": 40, "tokens": 24000, "supervised_tokens": 9000,
//    "efficiency": 0.976, "padding_token": 0, "turns": 55, "unended_turns": 0,
//    "truncated": 0, "skipped": 0,
//    "sources": [{"file": "a.jsonl", "weight": 1.0, "documents": 40,
//                 "tokens": 24000}],
//    "shards": [{"file": "shard-00000", "rows": 12, "documents": 40,
//                "tokens": 24000}]}
#pragma once
#include "runtime/data/PackedShard.h"

#include <string_view>
#include <vector>

namespace tessera {

/// What the documents of a dataset are for: next tokens (DocumentKind::Plain),
/// pairs of a chosen and a rejected answer, or answers with a label, for each
/// of which there is a mismatched one.
enum class PackedObjective : uint8_t { Sft, Preference, Label };

/// "sft", "preference" or "label".
std::string_view nameOf(PackedObjective objective);

/// What index.json says.
struct PackedIndex {
  struct Source {
    std::string file;  ///< as it was named
    double weight = 1; ///< times that each of its documents occurs
    uint64_t documents = 0, tokens = 0;
  };
  struct Shard {
    std::string file; ///< a plain name, without .tok and .rows
    uint64_t rows = 0, documents = 0, tokens = 0;
  };
  PackedObjective objective = PackedObjective::Sft;
  uint64_t sequence = 0; ///< positions of a row
  uint64_t vocabSize = 0;
  uint64_t tokenizerHash = 0; ///< XXH3-64 of the bytes of tokenizer.json
  uint64_t templateHash = 0;  ///< of the chat template's source; 0: not used
  uint64_t rows = 0, documents = 0, tokens = 0, supervisedTokens = 0;
  uint64_t paddingToken = 0;
  uint64_t turns = 0, unendedTurns = 0; ///< of an assistant
  uint64_t truncated = 0, skipped = 0;  ///< documents; lines of the input
  std::vector<Source> sources;
  std::vector<Shard> shards;

  /// Tokens ÷ positions.
  double efficiency() const {
    return rows == 0 ? 0 : double(tokens) / (double(rows) * double(sequence));
  }
};

/// Parses index.json; `where` names it in errors.
StatusOr<PackedIndex> parsePackedIndex(std::string_view json,
                                       const std::string &where);

/// Reads `folder`/index.json.
StatusOr<PackedIndex> readPackedIndex(const std::string &folder);

/// Writes `folder`/index.json in one step.
Status writePackedIndex(const PackedIndex &index, const std::string &folder);

/// Whether `folder`/index.json says that the folder has packed rows.
bool isPackedFolder(const std::string &folder);

} // namespace tessera
