#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/BpeModel.h"
#include "runtime/data/tokenizer/ByteAlphabet.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

namespace tessera::tokenizer {

static constexpr uint32_t maxVocab = 1 << 24;
/// In Learner::ids: text that a special token has, which no merge may make.
static constexpr uint32_t reserved = 0xFFFFFFFF;

namespace {
/// A pair that may be merged, with the count it had when it was queued.
struct Candidate {
  int64_t count;
  Pair pair;
  uint32_t list; // which of Learner::lists names its words
};

/// std::push_heap keeps the greatest first: the most frequent, then the one
/// with the smaller ids.
bool operator<(const Candidate &a, const Candidate &b) {
  if (a.count != b.count)
    return a.count < b.count;
  return a.pair != b.pair ? a.pair > b.pair : a.list > b.list;
}

class Learner {
public:
  Learner(const WordTable &words, const TrainOptions &options);
  TrainedBpe run();

private:
  struct Word {
    uint64_t begin; // in symbols
    uint32_t length;
    int64_t count;
  };
  struct PairState {
    int64_t count = 0;
    std::vector<uint32_t> words; // in which this round created the pair
  };

  void addAlphabet();
  void addWords(const WordTable &words);
  void countPairs();
  void queue(Pair pair, int64_t count, std::vector<uint32_t> words);
  /// The most frequent candidate whose count is up to date, or none.
  bool pop(Candidate &best);
  uint32_t tokenFor(Pair pair);
  void mergeInWord(uint32_t index, Pair pair, uint32_t token);
  void changeCount(Pair pair, int64_t change, uint32_t word);

  const TrainOptions &options;
  TrainedBpe trained;
  StringMap<uint32_t> ids; // by bytes
  uint32_t byteTokens[256];
  std::vector<uint32_t> symbols;
  std::vector<Word> words;
  PairMap<PairState> pairs;
  std::vector<Pair> touched; // pairs whose PairState::words is not empty
  std::vector<Candidate> heap;
  std::vector<std::vector<uint32_t>> lists;
};
} // namespace

Learner::Learner(const WordTable &table, const TrainOptions &options)
    : options(options), pairs(1 << 16) {
  trained.options = options;
  trained.tokens = options.specialTokens;
  for (const std::string &token : options.specialTokens)
    if (auto bytes = bytesFromVisible(token))
      ids.emplace(std::move(*bytes), reserved);
  addAlphabet();
  addWords(table);
  countPairs();
}

void Learner::addAlphabet() {
  uint32_t order[256];
  std::iota(order, order + 256, 0u);
  std::sort(order, order + 256, [](uint32_t a, uint32_t b) {
    return byteCharacters()[a] < byteCharacters()[b];
  });
  for (uint32_t byte : order) {
    uint32_t id = static_cast<uint32_t>(trained.tokens.size());
    byteTokens[byte] = id;
    trained.tokens.emplace_back(1, static_cast<char>(byte));
    ids.emplace(trained.tokens.back(), id);
  }
}

void Learner::addWords(const WordTable &table) {
  std::vector<WordTable::Word> sorted = table.sorted();
  uint64_t total = 0;
  for (const WordTable::Word &word : sorted)
    total += word.length;
  symbols.reserve(total);
  words.reserve(sorted.size());
  for (const WordTable::Word &word : sorted) {
    words.push_back(
        {symbols.size(), word.length, static_cast<int64_t>(word.count)});
    for (char byte : table.text(word))
      symbols.push_back(byteTokens[static_cast<uint8_t>(byte)]);
  }
}

void Learner::countPairs() {
  for (uint32_t index = 0; index < words.size(); ++index) {
    const Word &word = words[index];
    for (uint32_t i = 0; i + 1 < word.length; ++i) {
      const uint32_t *at = &symbols[word.begin + i];
      PairState &state = pairs[makePair(at[0], at[1])];
      if (state.count == 0)
        touched.push_back(makePair(at[0], at[1]));
      state.count += word.count;
      if (state.words.empty() || state.words.back() != index)
        state.words.push_back(index);
    }
  }
  for (Pair pair : touched) {
    PairState &state = pairs[pair];
    queue(pair, state.count, std::exchange(state.words, {}));
  }
  touched.clear();
}

void Learner::queue(Pair pair, int64_t count, std::vector<uint32_t> inWords) {
  heap.push_back({count, pair, static_cast<uint32_t>(lists.size())});
  std::push_heap(heap.begin(), heap.end());
  lists.push_back(std::move(inWords));
}

bool Learner::pop(Candidate &best) {
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    best = heap.back();
    int64_t count = pairs[best.pair].count;
    if (best.count == count) {
      heap.pop_back();
      return true;
    }
    // Merges have changed the count since: queue it where it belongs now.
    heap.back().count = count;
    std::push_heap(heap.begin(), heap.end());
  }
  return false;
}

/// The token that `pair` becomes. Two pairs can spell the same token, "ab"+"c"
/// and "a"+"bc": then the second joins the first one's id. May be `reserved`.
uint32_t Learner::tokenFor(Pair pair) {
  std::string bytes =
      trained.tokens[leftOf(pair)] + trained.tokens[rightOf(pair)];
  auto [known, isNew] = ids.emplace(
      std::move(bytes), static_cast<uint32_t>(trained.tokens.size()));
  if (isNew)
    trained.tokens.push_back(known->first);
  return known->second;
}

void Learner::changeCount(Pair pair, int64_t change, uint32_t word) {
  PairState &state = pairs[pair];
  state.count += change;
  if (change < 0)
    return;
  if (state.words.empty())
    touched.push_back(pair);
  if (state.words.empty() || state.words.back() != word)
    state.words.push_back(word);
}

/// Replaces `pair` by `token` from left to right, closing the gaps.
void Learner::mergeInWord(uint32_t index, Pair pair, uint32_t token) {
  Word &word = words[index];
  uint32_t *text = &symbols[word.begin];
  uint32_t left = leftOf(pair), right = rightOf(pair), out = 0;
  for (uint32_t i = 0; i < word.length; ++i) {
    if (text[i] != left || i + 1 == word.length || text[i + 1] != right) {
      text[out++] = text[i];
      continue;
    }
    if (out > 0) {
      changeCount(makePair(text[out - 1], left), -word.count, index);
      changeCount(makePair(text[out - 1], token), word.count, index);
    }
    if (i + 2 < word.length) {
      changeCount(makePair(right, text[i + 2]), -word.count, index);
      changeCount(makePair(token, text[i + 2]), word.count, index);
    }
    text[out++] = token;
    ++i;
  }
  word.length = out;
}

TrainedBpe Learner::run() {
  Candidate best;
  int64_t least =
      static_cast<int64_t>(std::max<uint64_t>(options.minFrequency, 1));
  while (trained.tokens.size() < options.vocabSize && pop(best) &&
         best.count >= least) {
    uint32_t token = tokenFor(best.pair);
    if (token == reserved)
      continue;
    trained.merges.emplace_back(leftOf(best.pair), rightOf(best.pair));
    for (uint32_t word : std::exchange(lists[best.list], {}))
      mergeInWord(word, best.pair, token);
    for (Pair pair : std::exchange(touched, {})) {
      PairState &state = pairs[pair];
      std::vector<uint32_t> inWords = std::exchange(state.words, {});
      if (state.count > 0)
        queue(pair, state.count, std::move(inWords));
    }
  }
  return std::move(trained);
}

static Status checkOptions(const TrainOptions &options) {
  uint64_t least = 256 + options.specialTokens.size();
  if (options.vocabSize < least || options.vocabSize > maxVocab)
    return Status::error("a vocabulary of {} tokens cannot be trained; it must "
                         "be {} (the 256 bytes and {} special tokens) to {}",
                         options.vocabSize, least, options.specialTokens.size(),
                         maxVocab);
  std::set<std::string_view> seen;
  for (const std::string &token : options.specialTokens)
    if (token.size() < 2 || token.size() > 256 || !seen.insert(token).second)
      return Status::error("special token \"{}\" must have 2 to 256 bytes and "
                           "stand once",
                           token);
  if (options.minFrequency >> 62)
    return Status::error("minimum frequency {} is out of range",
                         options.minFrequency);
  return Status::success();
}

StatusOr<TrainedBpe> trainBpe(const WordTable &words,
                              const TrainOptions &options) {
  TESSERA_RETURN_IF_ERROR(checkOptions(options));
  return Learner(words, options).run();
}

} // namespace tessera::tokenizer
