// The forward pass of all decoders as plain loops in fp64, written to be
// obvious and without any of the builders' code: what they are tested against.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "models/ModelSpec.h"
#include "models/Rope.h"

namespace tessera::models {

/// Every parameter random, so that no bias or norm weight goes unseen.
inline std::map<std::string, std::vector<double>>
randomWeights(const ModelSpec &spec, std::mt19937_64 &random) {
  std::normal_distribution<double> normal(0, 0.4);
  std::map<std::string, std::vector<double>> weights;
  for (const Parameter &each : parameters(spec)) {
    std::vector<double> values(size_t(each.elements()));
    for (double &value : values)
      value = normal(random);
    weights[each.name] = values;
  }
  return weights;
}

class ReferenceModel {
public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>; ///< [tokens][width]

  ReferenceModel(const ModelSpec &spec, std::map<std::string, Row> weights)
      : spec(spec), weights(std::move(weights)) {}

  /// Logits of one sequence, [tokens][vocab].
  Rows logits(const std::vector<int> &tokens) const {
    Rows x;
    const std::string table = dotted(names.embedding, "weight");
    for (size_t t = 0; t < tokens.size(); ++t) {
      Row row = slice(table, size_t(tokens[t]));
      if (gpt2())
        row = plus(row, slice("transformer.wpe.weight", t));
      for (double &each : row)
        each *= spec.embeddingScale;
      x.push_back(row);
    }
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      x = runLayer(x, layer);
    x = norms(x, std::string(names.norm));
    const Row &head =
        weight(spec.tieWordEmbeddings ? table : dotted(names.head, "weight"));
    Rows result;
    for (const Row &row : x) {
      result.push_back(rowsTimes(head, row));
      for (double &each : result.back())
        each = capped(each * spec.logitScale, spec.logitCap);
    }
    return result;
  }

private:
  bool gpt2() const { return spec.family == Family::Gpt2; }
  static std::string dotted(std::string_view module, std::string_view part) {
    return std::string(module) + "." + std::string(part);
  }
  const Row &weight(const std::string &name) const { return weights.at(name); }
  Row slice(const std::string &table, size_t index) const {
    auto begin = weight(table).begin() + int64_t(index) * spec.hidden;
    return Row(begin, begin + spec.hidden);
  }
  static double capped(double x, std::optional<double> cap) {
    return cap ? *cap * std::tanh(x / *cap) : x;
  }
  static Row part(const Row &row, int64_t begin, int64_t count) {
    return Row(row.begin() + begin, row.begin() + begin + count);
  }
  static Row plus(Row a, const Row &b) {
    for (size_t i = 0; i < a.size(); ++i)
      a[i] += b[i];
    return a;
  }
  /// matrix [out, in] times x.
  static Row rowsTimes(const Row &matrix, const Row &x) {
    Row y(matrix.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i)
        y[o] += matrix[o * x.size() + i] * x[i];
    return y;
  }
  /// matrix [in, out]: Conv1D.
  static Row columnsTimes(const Row &matrix, const Row &x) {
    Row y(matrix.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i)
        y[o] += matrix[i * y.size() + o] * x[i];
    return y;
  }
  Row project(const std::string &name, const Row &x) const {
    Row y = gpt2() ? columnsTimes(weight(name + ".weight"), x)
                   : rowsTimes(weight(name + ".weight"), x);
    auto bias = weights.find(name + ".bias");
    return bias == weights.end() ? y : plus(y, bias->second);
  }
  /// x / sqrt(mean(x²) + eps) × weight.
  Row rmsNorm(const Row &x, const std::string &name) const {
    return rmsNorm(x, name, spec.normEps);
  }
  Row rmsNorm(const Row &x, const std::string &name, double eps) const {
    double square = 0;
    for (double each : x)
      square += each * each / double(x.size());
    Row y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back(x[i] / std::sqrt(square + eps) *
                  (weight(name + ".weight")[i] + (spec.normPlusOne ? 1 : 0)));
    return y;
  }
  Row norm(const Row &x, const std::string &name) const {
    double mean = 0, square = 0;
    if (spec.norm == NormKind::LayerNorm)
      for (double each : x)
        mean += each / double(x.size());
    for (double each : x)
      square += (each - mean) * (each - mean) / double(x.size());
    Row y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(square + spec.normEps) *
                  (weight(name + ".weight")[i] + (spec.normPlusOne ? 1 : 0)));
      if (spec.norm == NormKind::LayerNorm && spec.normBias)
        y[i] += weight(name + ".bias")[i];
    }
    return y;
  }
  Rows norms(Rows x, const std::string &name) const {
    for (Row &row : x)
      row = norm(row, name);
    return x;
  }
  double activate(double x) const {
    auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
    switch (spec.activation) {
    case Activation::Gelu:
      return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::GeluTanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) *
                            (x + 0.044715 * x * x * x)));
    case Activation::QuickGelu:
      return x * sigmoid(1.702 * x);
    case Activation::Silu:
      return x * sigmoid(x);
    case Activation::Relu:
      return x > 0 ? x : 0;
    }
    return 0;
  }
  /// Head `head` of a projected row.
  Row headOf(const Row &row, int64_t head) const {
    auto begin = row.begin() + head * spec.headDim;
    return Row(begin, begin + spec.headDim);
  }
  /// The rotated pairs of a head: elements i and i + half, or neighbours.
  Row rotated(const Row &head, int64_t layer, int64_t position,
              int64_t tokens) const {
    if (!spec.rotates(layer))
      return head;
    RopeFrequencies rope = ropeFrequencies(spec, spec.ropeOf(layer), tokens);
    size_t half = size_t(spec.rotaryDim ? spec.rotaryDim : spec.headDim) / 2;
    Row turned = head;
    for (size_t i = 0; i < half; ++i) {
      size_t first = spec.interleavedRope ? 2 * i : i;
      size_t second = spec.interleavedRope ? 2 * i + 1 : i + half;
      double angle = double(position) * rope.inverseFrequencies[i];
      double c = std::cos(angle) * rope.attentionScaling;
      double s = std::sin(angle) * rope.attentionScaling;
      turned[first] = head[first] * c - head[second] * s;
      turned[second] = head[second] * c + head[first] * s;
    }
    return turned;
  }
  /// Normalized and rotated, where the model does so.
  Row prepared(Row head, int64_t layer, int64_t position, int64_t tokens,
               const std::string &normName) const {
    if (spec.qkNorm == QkNorm::Head)
      head = rmsNorm(head, normName);
    head = rotated(head, layer, position, tokens);
    return spec.qkNorm == QkNorm::AfterRope ? rmsNorm(head, normName) : head;
  }

  /// What a cache of int8 keeps of a head's key or value.
  Row kept(Row head) const {
    if (!roundsKeysAndValues)
      return head;
    double most = 0;
    for (double each : head)
      most = std::max(most, std::abs(each));
    for (double &each : head)
      each = std::round(each * 127 / most) * (most / 127);
    return head;
  }

  /// Queries, keys and values of all heads of one token.
  std::tuple<Row, Row, Row> projections(const Row &x,
                                        const std::string &prefix) const {
    auto of = [&](std::string_view name) {
      return project(prefix + std::string(name), x);
    };
    if (!gpt2() && spec.qkvLayout == QkvLayout::Apart)
      return {of(names.query), of(names.key), of(names.value)};
    Row fused = of(gpt2() ? "attn.c_attn" : names.qkv);
    const int64_t dim = spec.headDim, first = spec.heads * dim,
                  each = spec.kvHeads * dim;
    if (spec.qkvLayout != QkvLayout::ByHead)
      return {part(fused, 0, first), part(fused, first, each),
              part(fused, first + each, each)};
    std::array<Row, 3> parts;
    for (int64_t head = 0; head < spec.heads; ++head)
      for (int64_t which = 0; which < 3; ++which) {
        Row some = part(fused, (3 * head + which) * dim, dim);
        Row &whole = parts[size_t(which)];
        whole.insert(whole.end(), some.begin(), some.end());
      }
    return {parts[0], parts[1], parts[2]};
  }

  /// A token of latent attention: queries, keys and values of all heads, where
  /// the last elements of queries and keys are rotated.
  std::tuple<Rows, Rows, Rows> latentHeads(const Row &x, int64_t layer,
                                           int64_t position, int64_t tokens,
                                           const std::string &prefix) const {
    const LatentSpec &latent = *spec.latent;
    const int64_t plain = latent.unrotated, turning = latent.rotated;
    auto of = [&](std::string_view name, const Row &y) {
      return project(prefix + std::string(name), y);
    };
    auto normed = [&](std::string_view name, const Row &y) {
      return rmsNorm(y, prefix + std::string(name), 1e-6);
    };
    Row queries = latent.queryRank
                      ? of(names.queryUp,
                           normed(names.queryDownNorm, of(names.queryDown, x)))
                      : of(names.query, x);
    auto joined = [](Row a, const Row &b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    Row both = of(names.latent, x);
    Row cached = kept(joined(
        normed(names.latentNorm, part(both, 0, latent.rank)),
        rotated(part(both, latent.rank, turning), layer, position, tokens)));
    Row up = of(names.latentUp, part(cached, 0, latent.rank)),
        shared = part(cached, latent.rank, turning);
    Rows query, key, value;
    for (int64_t head = 0; head < spec.heads; ++head) {
      Row q = part(queries, head * (plain + turning), plain + turning);
      query.push_back(
          joined(part(q, 0, plain),
                 rotated(part(q, plain, turning), layer, position, tokens)));
      Row own =
          part(up, head * (plain + latent.valueDim), plain + latent.valueDim);
      key.push_back(joined(part(own, 0, plain), shared));
      value.push_back(part(own, plain, latent.valueDim));
    }
    return {query, key, value};
  }

  Rows attendLatent(const Rows &x, int64_t layer,
                    const std::string &prefix) const {
    std::vector<std::tuple<Rows, Rows, Rows>> all;
    for (size_t t = 0; t < x.size(); ++t)
      all.push_back(
          latentHeads(x[t], layer, int64_t(t), int64_t(x.size()), prefix));
    Rows result(x.size());
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < size_t(spec.heads); ++h) {
        const Row &q = std::get<0>(all[t])[h];
        Row out(size_t(spec.latent->valueDim));
        double sum = 0;
        for (size_t s = 0; s <= t; ++s) {
          const auto &[queries, keys, values] = all[s];
          double score = 0;
          for (size_t d = 0; d < q.size(); ++d)
            score += q[d] * keys[h][d];
          double p = std::exp(score * spec.attentionScale(layer));
          for (size_t d = 0; d < out.size(); ++d)
            out[d] += p * values[h][d];
          sum += p;
        }
        for (double each : out)
          result[t].push_back(each / sum);
      }
      result[t] = project(prefix + std::string(names.output), result[t]);
    }
    return result;
  }

  Rows attend(const Rows &x, int64_t layer, const std::string &prefix) const {
    if (spec.latent)
      return attendLatent(x, layer, prefix);
    const int64_t tokens = int64_t(x.size());
    const int64_t group = spec.heads / spec.kvHeads;
    const std::string queryNorm = prefix + std::string(names.queryNorm),
                      keyNorm = prefix + std::string(names.keyNorm);
    Rows query, key, value;
    for (const Row &row : x) {
      auto [q, k, v] = projections(row, prefix);
      if (spec.qkNorm == QkNorm::Width)
        q = rmsNorm(q, queryNorm), k = rmsNorm(k, keyNorm);
      query.push_back(q), key.push_back(k), value.push_back(v);
    }
    Rows result(x.size());
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < spec.heads; ++h) {
        Row q =
            prepared(headOf(query[size_t(t)], h), layer, t, tokens, queryNorm);
        Row out(size_t(spec.headDim));
        double sum =
            spec.attentionSinks
                ? std::exp(weight(prefix + std::string(names.sinks))[h])
                : 0;
        for (int64_t s = 0; s <= t; ++s) {
          if (spec.window(layer) > 0 && t - s >= spec.window(layer))
            continue;
          Row k = kept(prepared(headOf(key[size_t(s)], h / group), layer, s,
                                tokens, keyNorm));
          double score = 0;
          for (size_t d = 0; d < q.size(); ++d)
            score += q[d] * k[d];
          double p = std::exp(
              capped(score * spec.attentionScale(layer), spec.scoreCap));
          Row v = kept(headOf(value[size_t(s)], h / group));
          for (size_t d = 0; d < v.size(); ++d)
            out[d] += p * v[d];
          sum += p;
        }
        for (double each : out)
          result[size_t(t)].push_back(each / sum);
      }
    const std::string output =
        gpt2() ? "attn.c_proj" : std::string(names.output);
    for (Row &row : result)
      row = project(prefix + output, row);
    return result;
  }

  /// What a mixer of Mamba-2 convolves, of each token.
  Rows convolved(const Rows &x, const std::string &path) const {
    const StateSpaceSpec &mixer = *spec.stateSpace;
    const Row &kernel = weight(path + ".conv1d.weight");
    Rows y;
    for (int64_t t = 0; t < int64_t(x.size()); ++t) {
      Row row(size_t(mixer.channels()));
      if (mixer.convBias)
        row = weight(path + ".conv1d.bias");
      for (int64_t c = 0; c < mixer.channels(); ++c) {
        for (int64_t k = 0; k < mixer.kernel; ++k)
          if (int64_t from = t - mixer.kernel + 1 + k; from >= 0)
            row[size_t(c)] += kernel[size_t(c * mixer.kernel + k)] *
                              x[size_t(from)][size_t(c)];
        row[size_t(c)] = activate(row[size_t(c)]);
      }
      y.push_back(row);
    }
    return y;
  }

  /// One head's recurrence; adds what it gives to `y`, [tokens][width].
  void scan(const Rows &mixed, const Rows &steps, int64_t head,
            const std::string &path, Rows &y) const {
    const StateSpaceSpec &mixer = *spec.stateSpace;
    const int64_t group = head / (mixer.heads / mixer.groups), n = mixer.state,
                  write = mixer.width() + group * n,
                  read = write + mixer.groups * n;
    const size_t h = size_t(head);
    const double rate = -std::exp(weight(path + ".A_log")[h]);
    Rows state(size_t(mixer.headDim), Row(size_t(n)));
    for (size_t t = 0; t < mixed.size(); ++t) {
      double d =
          std::log1p(std::exp(steps[t][h] + weight(path + ".dt_bias")[h]));
      d = std::max(d, mixer.leastStep);
      d = mixer.mostStep ? std::min(d, *mixer.mostStep) : d;
      for (int64_t p = 0; p < mixer.headDim; ++p) {
        const size_t at = size_t(head * mixer.headDim + p);
        y[t][at] += weight(path + ".D")[h] * mixed[t][at];
        for (int64_t i = 0; i < n; ++i) {
          double &each = state[size_t(p)][size_t(i)];
          each = std::exp(d * rate) * each +
                 d * mixed[t][at] * mixed[t][size_t(write + i)];
          y[t][at] += each * mixed[t][size_t(read + i)];
        }
      }
    }
  }

  Rows mix(const Rows &x, const std::string &path) const {
    const StateSpaceSpec &mixer = *spec.stateSpace;
    const int64_t width = mixer.width();
    Rows gates, mixed, steps;
    for (const Row &row : x) {
      Row all = project(path + ".in_proj", row);
      gates.push_back(part(all, 0, width));
      mixed.push_back(part(all, width, mixer.channels()));
      steps.push_back(part(all, width + mixer.channels(), mixer.heads));
    }
    mixed = convolved(mixed, path);
    Rows y(x.size(), Row(size_t(width)));
    for (int64_t head = 0; head < mixer.heads; ++head)
      scan(mixed, steps, head, path, y);
    const int64_t each = width / mixer.groups;
    for (size_t t = 0; t < y.size(); ++t) {
      for (int64_t group = 0; group < mixer.groups; ++group) {
        double square = 0;
        for (int64_t i = group * each; i < (group + 1) * each; ++i) {
          const double gate = gates[t][size_t(i)];
          y[t][size_t(i)] *= gate / (1 + std::exp(-gate));
          square += y[t][size_t(i)] * y[t][size_t(i)] / double(each);
        }
        for (int64_t i = group * each; i < (group + 1) * each; ++i)
          y[t][size_t(i)] *= weight(path + ".norm.weight")[size_t(i)] /
                             std::sqrt(square + spec.normEps);
      }
      y[t] = project(path + ".out_proj", y[t]);
    }
    return y;
  }

  /// Indices of `values`, the greatest first, equal ones in order.
  static std::vector<size_t> descending(const Row &values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return values[a] > values[b] || (values[a] == values[b] && a < b);
    });
    return order;
  }
  /// Entry `index` of a stack of matrices.
  Row matrixOf(const std::string &stack, size_t index) const {
    const Row &all = weight(stack + ".weight");
    size_t size = all.size() / size_t(spec.moe->experts);
    auto begin = all.begin() + int64_t(index * size);
    return Row(begin, begin + int64_t(size));
  }
  /// Row `index` of a table with a row for each expert.
  Row rowOf(const std::string &table, size_t index) const {
    const int64_t size = int64_t(weight(table).size()) / spec.moe->experts;
    return part(weight(table), int64_t(index) * size, size);
  }
  /// gpt-oss's expert `index`.
  Row fusedExpert(const std::string &experts, size_t index,
                  const Row &x) const {
    const std::string both = experts + ".gate_up_proj",
                      down = experts + ".down_proj";
    Row columns =
        plus(columnsTimes(rowOf(both, index), x), rowOf(both + "_bias", index));
    const double limit = *spec.moe->swigluLimit;
    Row inner(columns.size() / 2);
    for (size_t i = 0; i < inner.size(); ++i)
      inner[i] = activate(std::min(columns[2 * i], limit)) *
                 (std::clamp(columns[2 * i + 1], -limit, limit) + 1);
    return plus(columnsTimes(rowOf(down, index), inner),
                rowOf(down + "_bias", index));
  }
  Row gated(const Row &gate, const Row &up, const Row &down,
            const Row &x) const {
    Row inner = rowsTimes(gate, x), other = rowsTimes(up, x);
    for (size_t i = 0; i < inner.size(); ++i)
      inner[i] = activate(inner[i]) * other[i];
    return rowsTimes(down, inner);
  }
  /// Gate and up are the halves of one matrix.
  Row halvesGated(const Row &both, const Row &down, const Row &x) const {
    const int64_t half = int64_t(both.size()) / 2;
    return gated(part(both, 0, half), part(both, half, half), down, x);
  }
  /// Scores outside of the best groups are −infinity.
  void limitToGroups(Row &wanted) const {
    const MoeSpec &moe = *spec.moe;
    size_t size = wanted.size() / size_t(moe.groups);
    Row best;
    for (size_t g = 0; g < size_t(moe.groups); ++g) {
      auto begin = wanted.begin() + int64_t(g * size);
      Row group(begin, begin + int64_t(size));
      std::sort(group.rbegin(), group.rend());
      best.push_back(group[0] + (moe.groupBest > 1 ? group[1] : 0));
    }
    std::vector<size_t> order = descending(best);
    for (size_t rank = size_t(moe.chosenGroups); rank < order.size(); ++rank)
      std::fill_n(wanted.begin() + int64_t(order[rank] * size), size,
                  -std::numeric_limits<double>::infinity());
  }

public:
  /// The experts of one token, and what each weighs.
  struct Choice {
    Row logits, scores; ///< of all experts
    std::vector<size_t> experts;
    Row weights;
    std::vector<bool> dropped;
  };
  bool roundsKeysAndValues = false;
  /// Tokens of a sequence that an expert takes; 0: all. Those beyond are the
  /// last ones, or those of the least weight.
  int64_t room = 0;
  bool dropsByWeight = false;
  /// What logits() chose, by layer, token by token.
  mutable std::map<int64_t, std::vector<Choice>> choices;

  Choice choose(const Row &x, const std::string &prefix) const {
    const MoeSpec &moe = *spec.moe;
    std::string router = prefix + std::string(expertNames(spec).router);
    Choice choice;
    double sum = 0;
    choice.logits = project(router, x);
    for (double logit : choice.logits) {
      bool softmax = moe.score == RouterScore::Softmax;
      choice.scores.push_back(softmax ? std::exp(logit)
                                      : 1 / (1 + std::exp(-logit)));
      sum += choice.scores.back();
    }
    if (moe.score == RouterScore::Softmax)
      for (double &each : choice.scores)
        each /= sum;
    Row wanted = choice.scores;
    if (moe.selectionBias)
      wanted = plus(wanted, weight(router + ".e_score_correction_bias"));
    if (moe.groups > moe.chosenGroups)
      limitToGroups(wanted);
    choice.experts = descending(wanted);
    choice.experts.resize(size_t(moe.chosen));
    double chosen = 0;
    for (size_t expert : choice.experts)
      chosen += choice.scores[expert];
    for (size_t expert : choice.experts)
      choice.weights.push_back(choice.scores[expert] * moe.scale /
                               (moe.normalize ? chosen : 1));
    choice.dropped.assign(choice.experts.size(), false);
    return choice;
  }

private:
  void dropBeyondRoom(std::vector<Choice> &tokens) const {
    struct Entry {
      double weight;
      size_t token, choice;
    };
    for (size_t expert = 0; room && expert < size_t(spec.moe->experts);
         ++expert) {
      std::vector<Entry> entries;
      for (size_t t = 0; t < tokens.size(); ++t)
        for (size_t j = 0; j < tokens[t].experts.size(); ++j)
          if (tokens[t].experts[j] == expert)
            entries.push_back({tokens[t].weights[j], t, j});
      if (dropsByWeight)
        std::sort(
            entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.weight > b.weight; });
      for (size_t i = size_t(room); i < entries.size(); ++i)
        tokens[entries[i].token].dropped[entries[i].choice] = true;
    }
  }

  Row experts(const Row &x, const Choice &choice,
              const std::string &prefix) const {
    ExpertNames names = expertNames(spec);
    auto part = [](std::string_view module, std::string_view matrix) {
      return std::string(module) + "." + std::string(matrix);
    };
    Row y(x.size());
    for (size_t j = 0; j < choice.experts.size(); ++j) {
      if (choice.dropped[j])
        continue;
      auto matrix = [&](std::string_view name) {
        return matrixOf(prefix + part(names.experts, name), choice.experts[j]);
      };
      Row z = spec.moe->fused ? fusedExpert(prefix + std::string(names.experts),
                                            choice.experts[j], x)
              : spec.moe->fusedGateUp
                  ? halvesGated(matrix(names.up), matrix(names.down), x)
                  : gated(matrix(names.gate), matrix(names.up),
                          matrix(names.down), x);
      for (size_t i = 0; i < y.size(); ++i)
        y[i] += choice.weights[j] * z[i];
    }
    if (!spec.moe->sharedIntermediate)
      return y;
    std::string shared = prefix + std::string(names.shared);
    auto ofShared = [&](std::string_view name) {
      return weight(part(shared, name) + ".weight");
    };
    Row z = spec.moe->fusedGateUp
                ? halvesGated(ofShared(names.up), ofShared(names.down), x)
                : gated(ofShared(names.gate), ofShared(names.up),
                        ofShared(names.down), x);
    double share = 1;
    if (spec.moe->sharedGate)
      share =
          1 / (1 + std::exp(-rowsTimes(weight(shared + "_gate.weight"), x)[0]));
    for (size_t i = 0; i < y.size(); ++i)
      y[i] += share * z[i];
    return y;
  }

  Row feedForward(const Row &x, const std::string &prefix) const {
    auto of = [&](std::string_view name, const Row &from) {
      return project(prefix + std::string(name), from);
    };
    Row inner, factor(size_t(spec.intermediate), 1.0);
    if (spec.fusedGateUp) {
      Row both = of(names.gateUp, x);
      inner = part(both, 0, spec.intermediate);
      factor = part(both, spec.intermediate, spec.intermediate);
    } else if (spec.gatedMlp) {
      inner = of(names.gate, x);
      factor = of(names.up, x);
    } else {
      inner = of(gpt2() ? "mlp.c_fc" : names.up, x);
    }
    for (size_t i = 0; i < inner.size(); ++i)
      inner[i] = activate(inner[i]) * factor[i];
    return of(gpt2() ? "mlp.c_proj" : names.down, inner);
  }

  /// The outputs of the MLP, or of the experts.
  Rows feedForwards(const Rows &x, int64_t layer,
                    const std::string &prefix) const {
    Rows result;
    if (!spec.isSparse(layer)) {
      for (const Row &row : x)
        result.push_back(feedForward(row, prefix));
      return result;
    }
    std::vector<Choice> &chosen = choices[layer];
    chosen.clear();
    for (const Row &row : x)
      chosen.push_back(choose(row, prefix));
    dropBeyondRoom(chosen);
    for (size_t t = 0; t < x.size(); ++t)
      result.push_back(experts(x[t], chosen[t], prefix));
    return result;
  }

  /// x plus the output y of a sub-layer.
  Rows added(Rows x, Rows y, const std::string &postNorm) const {
    if (spec.residual.postNorms)
      y = norms(y, postNorm);
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < x[t].size(); ++i)
        x[t][i] += y[t][i] * spec.residual.scale;
    return x;
  }

  Rows runLayer(const Rows &x, int64_t layer) const {
    std::string prefix = layerPrefix(spec, layer);
    auto full = [&](std::string_view name) {
      return prefix + std::string(name);
    };
    Rows input = x;
    if (spec.residual.preNorms)
      input = norms(x, full(gpt2() ? "ln_1" : names.attentionNorm));
    Rows y = added(x,
                   spec.isRecurrent(layer) ? mix(input, full(names.mixer))
                                           : attend(input, layer, prefix),
                   full(names.attentionPostNorm));
    if (!spec.hasMlp())
      return y;
    // What the MLP reads.
    if (spec.residual.order == ResidualSpec::Serial)
      input = y;
    else if (spec.residual.order == ResidualSpec::Parallel)
      input = x;
    if (spec.residual.hasMlpNorm())
      input = norms(input, full(gpt2() ? "ln_2" : names.mlpNorm));
    return added(y, feedForwards(input, layer, prefix),
                 full(names.mlpPostNorm));
  }

  const ModelSpec spec;
  const ModuleNames names = moduleNames(spec);
  const std::map<std::string, Row> weights;
};

} // namespace tessera::models
