#include "runtime/data/tokenizer/WordCounter.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace tessera::tokenizer {

static constexpr size_t batchLimit = 16 << 20; // bytes of text

WordTable::WordTable() : slots(1 << 12) {}

void WordTable::add(std::string_view word, uint64_t count) {
  addHashed(word, XXH3_64bits(word.data(), word.size()), count);
}

void WordTable::addHashed(std::string_view word, uint64_t hash,
                          uint64_t count) {
  if ((used + 1) * 2 > slots.size())
    grow();
  size_t mask = slots.size() - 1;
  size_t at = hash & mask;
  for (; slots[at].count != 0; at = (at + 1) & mask) {
    if (slots[at].hash == hash && text(slots[at]) == word) {
      slots[at].count += count;
      return;
    }
  }
  slots[at] = {hash, arena.size(), static_cast<uint32_t>(word.size()), count};
  arena += word;
  ++used;
}

void WordTable::addAll(const WordTable &other) {
  for (const Word &word : other.slots)
    if (word.count != 0)
      addHashed(other.text(word), word.hash, word.count);
}

void WordTable::grow() {
  std::vector<Word> old = std::exchange(slots, {});
  slots.resize(old.size() * 2);
  size_t mask = slots.size() - 1;
  for (const Word &word : old) {
    if (word.count == 0)
      continue;
    size_t at = word.hash & mask;
    while (slots[at].count != 0)
      at = (at + 1) & mask;
    slots[at] = word;
  }
}

std::vector<WordTable::Word> WordTable::sorted() const {
  std::vector<Word> words;
  words.reserve(used);
  for (const Word &word : slots)
    if (word.count != 0)
      words.push_back(word);
  std::sort(words.begin(), words.end(), [&](const Word &a, const Word &b) {
    return a.hash != b.hash ? a.hash < b.hash : text(a) < text(b);
  });
  return words;
}

/// The longest part of `piece` of at most maxWordBytes that ends between two
/// characters (or anywhere, if the text is not UTF-8).
static size_t wordLength(std::string_view piece) {
  if (piece.size() <= maxWordBytes)
    return piece.size();
  for (size_t length = maxWordBytes; length > maxWordBytes - 4; --length)
    if ((static_cast<uint8_t>(piece[length]) & 0xC0) != 0x80)
      return length;
  return maxWordBytes;
}

static void countPiece(std::string_view piece, WordTable &table) {
  while (!piece.empty()) {
    size_t length = wordLength(piece);
    table.add(piece.substr(0, length), 1);
    piece.remove_prefix(length);
  }
}

static void countPieces(SplitPattern pattern, std::string_view document,
                        WordTable &table) {
  if (pattern == SplitPattern::Whole)
    return countPiece(document, table);
  RegexScanner scanner(*splitPatternAutomaton(pattern), document);
  while (auto match = scanner.next())
    countPiece(document.substr(match->begin, match->end - match->begin), table);
}

void WordCounter::add(std::string document) {
  batchBytes += document.size();
  batch.push_back(std::move(document));
  if (batchBytes >= batchLimit)
    flush();
}

void WordCounter::flush() {
  std::atomic<size_t> next = 0;
  auto work = [&](WordTable &table) {
    for (size_t i = next++; i < batch.size(); i = next++)
      countPieces(pattern, batch[i], table);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < tables.size(); ++i)
    threads.emplace_back([&, i] { work(tables[i]); });
  work(tables[0]);
  for (std::thread &thread : threads)
    thread.join();
  batch.clear();
  batchBytes = 0;
}

WordTable WordCounter::finish() {
  flush();
  for (size_t i = 1; i < tables.size(); ++i) {
    tables[0].addAll(tables[i]);
    tables[i] = WordTable();
  }
  return std::move(tables[0]);
}

} // namespace tessera::tokenizer
