#include "runtime/weights/PackMicropanels.h"

#include <gtest/gtest.h>
#include <numeric>

using namespace tessera;

// Whole micropanels and ragged ones, columns in whole lines, in a rest of them,
// and an odd one; zeros wherever nothing is.
TEST(PackMicropanel, HasEveryWeightOnce) {
  for (int64_t rows : {16, 5, 1})
    for (int64_t columns : {32, 64, 71, 100, 33}) {
      const QuantizedLayout layout{rows, columns, 16};
      std::vector<uint16_t> weights(rows * columns);
      std::iota(weights.begin(), weights.end(), uint16_t(1));
      std::vector<uint32_t> words(layout.words() * kMicropanel, 0xdeadbeef);
      packMicropanel(layout, weights, words);
      for (int64_t word = 0; word < layout.words(); ++word)
        for (int64_t row = 0; row < kMicropanel; ++row) {
          auto at = [&](int64_t column) -> uint32_t {
            return row < rows && column < columns
                       ? weights[row * columns + column]
                       : 0;
          };
          ASSERT_EQ(words[word * kMicropanel + row],
                    at(2 * word) | at(2 * word + 1) << 16)
              << rows << " " << columns << " " << word << " " << row;
        }
    }
}
