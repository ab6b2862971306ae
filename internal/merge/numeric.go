package merge

import (
	"bytes"
	"cmp"
	"encoding/binary"
)

// A numeric is sent as the number of its digits to the base of 10000, the weight of the first of them, its sign, how many decimal
// places it is shown with, and the digits, each in 16 bits.
const (
	numericHeader = 8
	numericBase   = 10_000

	signPositive  = 0
	signNegative  = 0x4000
	signNaN       = 0xC000
	signPlusInf   = 0xD000
	signMinusInf  = 0xF000
	maxShownScale = 0x3FFF
	minWeight     = -(maxShownScale + 1) / 4 // of the last decimal place
)

func isNumeric(value []byte) bool {
	if len(value) < numericHeader || len(value) != numericHeader+2*int(binary.BigEndian.Uint16(value)) {
		return false
	}
	if binary.BigEndian.Uint16(value[6:]) > maxShownScale {
		return false
	}
	if lowest := int(int16At(value[2:])) + 1 - int(binary.BigEndian.Uint16(value)); lowest < minWeight {
		return false
	}
	switch binary.BigEndian.Uint16(value[4:]) {
	case signPositive, signNegative, signNaN, signPlusInf, signMinusInf:
	default:
		return false
	}
	for digits := value[numericHeader:]; len(digits) > 0; digits = digits[2:] {
		if binary.BigEndian.Uint16(digits) >= numericBase {
			return false
		}
	}
	return true
}

// rankOf puts numerics into classes, each above the one before: minus infinity, negative numbers, 0, positive ones, infinity, NaN.
func rankOf(sign uint16, isZero bool) int {
	switch {
	case sign == signMinusInf:
		return -2
	case sign == signPlusInf:
		return 2
	case sign == signNaN:
		return 3
	case isZero:
		return 0
	case sign == signNegative:
		return -1
	default:
		return 1
	}
}

// compareNumeric does not look at the number of decimal places: 1.0 and 1.00 are equal.
func compareNumeric(a, b []byte) int {
	aWeight, aDigits := significant(a)
	bWeight, bDigits := significant(b)
	aRank := rankOf(binary.BigEndian.Uint16(a[4:]), len(aDigits) == 0)
	bRank := rankOf(binary.BigEndian.Uint16(b[4:]), len(bDigits) == 0)
	if aRank != bRank || aRank != 1 && aRank != -1 {
		return cmp.Compare(aRank, bRank)
	}
	// Digits are compared as bytes: each is in big-endian order, and one that has more of them after the same is the larger.
	return aRank * cmp.Or(cmp.Compare(aWeight, bWeight), bytes.Compare(aDigits, bDigits))
}

// significant returns a numeric's digits without zeros at either end, and the weight of the first.
func significant(value []byte) (weight int, digits []byte) {
	weight, digits = int(int16At(value[2:])), value[numericHeader:]
	for len(digits) > 0 && binary.BigEndian.Uint16(digits) == 0 {
		weight, digits = weight-1, digits[2:]
	}
	for len(digits) > 0 && binary.BigEndian.Uint16(digits[len(digits)-2:]) == 0 {
		digits = digits[:len(digits)-2]
	}
	return weight, digits
}
