#include "CollectiveCase.h"

#include "runtime/support/Floats.h"

#include <cmath>
#include <cstring>

namespace tessera::comm {
namespace {

using Bytes = std::vector<std::byte>;

/// Any bits for integers; numbers of very different sizes for floats, so that
/// their sum depends on the order.
void appendRandom(Bytes &to, ElementType type, std::mt19937_64 &random) {
  const std::uint64_t bits = random();
  const double number = static_cast<double>(bits % 4001) / 1000.0 - 2.0;
  const auto scaled =
      static_cast<float>(std::ldexp(number, static_cast<int>(bits >> 60) - 8));
  const auto append = [&](const auto &value) {
    const auto *first = reinterpret_cast<const std::byte *>(&value);
    to.insert(to.end(), first, first + sizeof(value));
  };
  switch (type) {
  case ElementType::f64:
    return append(static_cast<double>(scaled) * 1.1);
  case ElementType::f32:
    return append(scaled);
  case ElementType::bf16:
    return append(floatToBf16(scaled));
  case ElementType::f16:
    return append(floatToF16(scaled));
  case ElementType::i1:
    return append(static_cast<std::uint8_t>(bits & 1));
  default:
    const auto *first = reinterpret_cast<const std::byte *>(&bits);
    to.insert(to.end(), first, first + artifact::elementBytes(type));
  }
}

template <typename T> T load(const Bytes &bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store(Bytes &bytes, std::uint64_t index, const T &value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

template <typename T> T combine(Reduction reduction, T a, T b) {
  if (reduction == Reduction::max)
    return a < b ? b : a;
  if (reduction == Reduction::min)
    return b < a ? b : a;
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) +
                          static_cast<std::uint64_t>(b));
  else
    return a + b;
}

/// Element `to` of the result: element `from` of every member's input, one
/// after the other.
template <typename T, typename Sum = T, typename Widen, typename Narrow>
void reduceElement(Reduction reduction, const std::vector<Bytes> &inputs,
                   std::uint64_t from, Bytes &result, std::uint64_t to,
                   Widen widen, Narrow narrow) {
  Sum sum = widen(load<T>(inputs[0], from));
  for (std::size_t m = 1; m < inputs.size(); ++m)
    sum = combine<Sum>(reduction, sum, widen(load<T>(inputs[m], from)));
  store<T>(result, to, narrow(sum));
}

void reduceElement(ElementType type, Reduction reduction,
                   const std::vector<Bytes> &inputs, std::uint64_t from,
                   Bytes &result, std::uint64_t to) {
  const auto plain = [&]<typename T>(T) {
    const auto same = [](T value) { return value; };
    reduceElement<T>(reduction, inputs, from, result, to, same, same);
  };
  switch (type) {
  case ElementType::f64:
    return plain(double());
  case ElementType::f32:
    return plain(float());
  case ElementType::i64:
    return plain(std::int64_t());
  case ElementType::i32:
    return plain(std::int32_t());
  case ElementType::i16:
    return plain(std::int16_t());
  case ElementType::i8:
    return plain(std::int8_t());
  case ElementType::u8:
  case ElementType::i1:
    return plain(std::uint8_t());
  case ElementType::bf16:
    return reduceElement<std::uint16_t, float>(reduction, inputs, from, result,
                                               to, bf16ToFloat, floatToBf16);
  case ElementType::f16:
    return reduceElement<std::uint16_t, float>(reduction, inputs, from, result,
                                               to, f16ToFloat, floatToF16);
  }
}

std::uint64_t sum(const std::vector<std::uint64_t> &counts, int end) {
  std::uint64_t total = 0;
  for (int i = 0; i < end; ++i)
    total += counts[static_cast<std::size_t>(i)];
  return total;
}

} // namespace

CollectiveCase::CollectiveCase(std::uint64_t seed, int members) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t end) { return random() % end; };
  const auto n = static_cast<std::size_t>(members);
  kind = static_cast<CollectiveKind>(below(7));
  type = static_cast<ElementType>(below(10));
  reduction = static_cast<Reduction>(below(3));
  if (type == ElementType::i1 && reduction == Reduction::sum)
    reduction = Reduction::max;
  // One case in eight is larger than what is done at once.
  const std::uint64_t scale = below(8) == 0 ? 40000 : below(2) == 0 ? 300 : 4;
  const auto anyCount = [&] { return below(4) == 0 ? 0 : below(scale); };
  count = anyCount();
  root = static_cast<int>(below(n));
  shift = static_cast<int>(below(n));
  matrix.assign(n, std::vector<std::uint64_t>(n));
  for (auto &row : matrix)
    for (std::uint64_t &entry : row)
      entry = anyCount();
  // all_gather and reduce_scatter: one count a member, the same for all.
  if (kind == CollectiveKind::allGather ||
      kind == CollectiveKind::reduceScatter)
    for (auto &row : matrix)
      row = matrix[0];
  makeInputs(random);
  makeExpected();
}

void CollectiveCase::makeInputs(std::mt19937_64 &random) {
  const int n = static_cast<int>(matrix.size());
  inputs.resize(matrix.size());
  for (int m = 0; m < n; ++m) {
    const auto &row = matrix[static_cast<std::size_t>(m)];
    std::uint64_t elements = count;
    if (kind == CollectiveKind::barrier)
      elements = 0;
    else if (kind == CollectiveKind::allGather)
      elements = row[static_cast<std::size_t>(m)];
    else if (kind == CollectiveKind::reduceScatter ||
             kind == CollectiveKind::allToAll)
      elements = sum(row, n);
    else if (kind == CollectiveKind::exchange)
      elements = row[static_cast<std::size_t>((m + shift) % n)];
    for (std::uint64_t i = 0; i < elements; ++i)
      appendRandom(inputs[static_cast<std::size_t>(m)], type, random);
  }
}

void CollectiveCase::makeExpected() {
  const auto n = static_cast<int>(matrix.size());
  const std::uint64_t width = artifact::elementBytes(type);
  for (int me = 0; me < n; ++me) {
    const auto m = static_cast<std::size_t>(me);
    Bytes &out = expected.emplace_back();
    const auto append = [&](const Bytes &from, std::uint64_t first,
                            std::uint64_t elements) {
      const auto begin = from.begin() + static_cast<long>(first * width);
      out.insert(out.end(), begin, begin + static_cast<long>(elements * width));
    };
    const auto reduce = [&](std::uint64_t first, std::uint64_t elements) {
      out.resize(elements * width);
      for (std::uint64_t i = 0; i < elements; ++i)
        reduceElement(type, reduction, inputs, first + i, out, i);
    };
    switch (kind) {
    case CollectiveKind::barrier:
      break;
    case CollectiveKind::broadcast:
      out = inputs[static_cast<std::size_t>(root)];
      break;
    case CollectiveKind::allReduce:
      reduce(0, count);
      break;
    case CollectiveKind::allGather:
      for (const Bytes &input : inputs)
        out.insert(out.end(), input.begin(), input.end());
      break;
    case CollectiveKind::reduceScatter:
      reduce(sum(matrix[0], me), matrix[0][m]);
      break;
    case CollectiveKind::allToAll:
      for (std::size_t from = 0; from < matrix.size(); ++from)
        append(inputs[from], sum(matrix[from], me), matrix[from][m]);
      break;
    case CollectiveKind::exchange:
      out = inputs[static_cast<std::size_t>((me + n - shift) % n)];
      break;
    }
  }
}

Collective CollectiveCase::of(int me, Bytes &output) const {
  const auto m = static_cast<std::size_t>(me);
  const auto n = matrix.size();
  const Bytes &input = inputs[m];
  output.assign(expected[m].size(), std::byte{0xa5});
  switch (kind) {
  case CollectiveKind::barrier:
    return Collective::barrier();
  case CollectiveKind::broadcast:
    if (me == root)
      output = input;
    return Collective::broadcast(type, output.data(), count, root);
  case CollectiveKind::allReduce:
    output = input;
    return Collective::allReduce(type, reduction, output.data(), count);
  case CollectiveKind::allGather:
    return Collective::allGather(type, input.data(), output.data(), [&] {
      std::vector<std::uint64_t> counts;
      for (std::size_t i = 0; i < n; ++i)
        counts.push_back(matrix[i][i]);
      return counts;
    }());
  case CollectiveKind::reduceScatter:
    return Collective::reduceScatter(type, reduction, input.data(),
                                     output.data(), matrix[0]);
  case CollectiveKind::allToAll: {
    std::vector<std::uint64_t> received;
    for (const auto &row : matrix)
      received.push_back(row[m]);
    return Collective::allToAll(type, input.data(), output.data(), matrix[m],
                                received);
  }
  case CollectiveKind::exchange: {
    const std::size_t shifted = static_cast<std::size_t>(shift);
    const std::size_t to = (m + shifted) % n, from = (m + n - shifted) % n;
    return Collective::exchange(type, input.data(), matrix[m][to],
                                static_cast<int>(to), output.data(),
                                matrix[from][m], static_cast<int>(from));
  }
  }
  return Collective::barrier();
}

std::string CollectiveCase::text() const {
  Bytes output;
  const Collective mine = of(0, output);
  return fmt::format("{} {} of {} members, reduction {}", nameOf(mine),
                     artifact::EnumNameElementType(type), matrix.size(),
                     static_cast<int>(reduction));
}

} // namespace tessera::comm
