#include "runtime/serve/AnswerStore.h"

#include <iterator>
#include <utility>

namespace tessera::serve {

// Overhead of an entry in the three indices, besides its strings.
static constexpr std::size_t kEntryBytes = 512, kItemBytes = 64;

std::size_t KeptAnswer::bytes() const {
  std::size_t sum = kEntryBytes + 3 * id.size() + chat.size();
  for (const InputItem &item : input)
    sum += kItemBytes + item.id.size() + item.json.size();
  for (const auto &[name, text] : metadata)
    sum += kItemBytes + name.size() + text.size();
  return response ? sum + response->bytes() : sum;
}

void AnswerStore::put(KeptAnswer answer) {
  erase(answer.id);
  std::size_t bytes = answer.bytes();
  bool runs = answer.running != nullptr;
  if (bytes > limits.bytes && !runs)
    return;
  uint64_t number = ++last;
  used.push_front(number);
  numbers[answer.id] = number;
  auto at =
      entries
          .emplace(number, Entry{std::move(answer), bytes, used.begin(), runs})
          .first;
  add(at->second);
  makeRoom();
}

void AnswerStore::add(const Entry &entry) {
  Sum &sum = sumOf(entry);
  ++sum.count;
  sum.bytes += entry.bytes;
}

void AnswerStore::subtract(const Entry &entry) {
  Sum &sum = sumOf(entry);
  --sum.count;
  sum.bytes -= entry.bytes;
}

KeptAnswer *AnswerStore::find(const std::string &id) {
  auto at = numbers.find(id);
  if (at == numbers.end())
    return nullptr;
  Entry &entry = entries.at(at->second);
  used.splice(used.begin(), used, entry.use);
  return &entry.answer;
}

void AnswerStore::erase(const std::string &id) {
  if (auto at = numbers.find(id); at != numbers.end())
    remove(entries.find(at->second));
}

void AnswerStore::weigh(const std::string &id) {
  auto at = numbers.find(id);
  if (at == numbers.end())
    return;
  Entry &entry = entries.at(at->second);
  subtract(entry);
  entry.bytes = entry.answer.bytes();
  entry.runs = entry.answer.running != nullptr;
  add(entry);
  if (entry.bytes > limits.bytes && !entry.runs)
    remove(entries.find(at->second));
  makeRoom();
}

void AnswerStore::makeRoom() {
  for (auto next = used.end(); next != used.begin();) {
    if (finished.count <= limits.count && finished.bytes <= limits.bytes)
      return;
    auto at = entries.find(*std::prev(next));
    if (at->second.runs) {
      --next;
      continue;
    }
    ++gone;
    remove(at);
  }
}

void AnswerStore::remove(Entries::iterator at) {
  subtract(at->second);
  used.erase(at->second.use);
  numbers.erase(at->second.answer.id);
  entries.erase(at);
}

} // namespace tessera::serve
