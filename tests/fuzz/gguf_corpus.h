// GGUF files for tests of the reader: one that is valid and uses every feature, and one for each
// way of breaking one field of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::gguf {

struct CorpusFile {
  std::string name;  // which field, and how it was broken
  std::string bytes;
};

// A valid file as raw bytes together with the place of each of its fields. Written here byte by
// byte, independently of gguf::Writer.
class FieldMap {
 public:
  FieldMap();

  const std::string& bytes() const { return bytes_; }
  // The file with one number or one text replaced by another of the same width.
  std::string With(std::string_view field, uint64_t value) const;
  std::string WithText(std::string_view field, std::string_view text) const;

  // Each number set to 0, 1, its value +- 1, doubled, to the largest unsigned and signed values, to
  // its top bit, and to three arbitrary values; each text to control characters.
  std::vector<CorpusFile> BreakEveryField() const;
  // The first n bytes, for every n below the size.
  std::vector<CorpusFile> CutEverywhere() const;

 private:
  struct Field {
    std::string name;
    size_t offset;
    size_t width;
    bool text;
  };

  const Field& Find(std::string_view name) const;
  uint64_t NumberAt(const Field& field) const;
  template <typename T>
  void Number(const std::string& name, T value);
  void Text(const std::string& name, std::string_view text);
  template <typename T>
  void Scalar(const std::string& key, uint32_t type, T value);
  void TextValue(const std::string& key, std::string_view text);
  template <typename T>
  void Array(const std::string& key, uint32_t type, const std::vector<T>& values);
  void Texts(const std::string& key, const std::vector<std::string>& values);
  void Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
              uint64_t bytes);

  std::string bytes_;
  std::vector<Field> fields_;
  uint64_t data_bytes_ = 0;  // of the tensors declared so far, with padding
};

}  // namespace strata::gguf
