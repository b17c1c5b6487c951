// `tessera data chat`: conversations and preference pairs of .jsonl files, to a
// folder of packed rows.
#pragma once
#include "runtime/data/chat/PackedWriter.h"

#include <functional>

namespace tessera::chat {

struct ChatSource {
  std::string path;
  /// Times that each example occurs: of 2.5, each twice and half of them, by a
  /// hash of the line's number, a third time.
  double weight = 1;
};

inline constexpr double maxSourceWeight = 1000;
inline constexpr size_t maxSources = 65535;

/// FILE or FILE:WEIGHT.
StatusOr<ChatSource> parseChatSource(const std::string &text);

struct ChatCorpusOptions {
  std::string tokenizer; ///< folder with tokenizer.json
  std::string source;    ///< a template to use instead of the folder's
  std::vector<ChatSource> inputs;
  /// Unless 0: gives a source of n lines the share n^(1/temperature), where the
  /// largest one occurs once. Multiplies the weights.
  double temperature = 0;
  uint64_t seed = 0;
  std::string out; ///< a new folder
  uint64_t sequence = 2048;
  PackedWriterOptions packing;
  /// Documents that are longer than a row, each of a pair than half of one,
  /// lose their end instead of being errors.
  bool truncates = false;
  /// Bad lines are counted, and told to `onSkipped`, instead of ending it.
  bool skipsBad = false;
  std::function<void(const std::string &error)> onSkipped;
  std::vector<std::string> endOfTurn; ///< instead of what the folder says
  ChatEncoderOptions encoding;
  unsigned threads = 1;
};

/// Writes the folder, which appears completely or not at all. The result does
/// not depend on the number of threads.
StatusOr<PackedIndex> packChats(const ChatCorpusOptions &options);

} // namespace tessera::chat
