#include "runtime/data/tokenizer/WordPieceModel.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>

namespace tessera::tokenizer {

void WordPieceModel::encode(std::string_view word,
                            std::vector<uint32_t> &out) const {
  auto characters = static_cast<uint64_t>(
      std::count_if(word.begin(), word.end(), [](char byte) {
        return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
      }));
  size_t before = out.size(), at = 0;
  bool known = characters <= maxCharacters;
  while (known && at < word.size()) {
    uint32_t node = at == 0 ? ByteTrie::root : continuing;
    size_t end = at;
    uint32_t token = 0;
    bool walks = at == 0 || continues;
    for (size_t i = at; walks && i < word.size(); ++i) {
      ByteTrie::Node next = trie.step(node, word[i]);
      if (next.next == ByteTrie::root)
        break;
      node = next.next;
      if (next.value != 0) {
        end = i + 1;
        token = next.value - 1;
      }
    }
    known = end > at;
    if (known)
      out.push_back(token);
    at = end;
  }
  if (!known) {
    out.resize(before);
    out.push_back(unknown);
  }
}

} // namespace tessera::tokenizer
