// Figures for people. A figure that was not measured is NaN inside and a dash on the page.

import { format } from "d3-format";

const NONE = "–";
const grouped = format(",.0f");
const oneDigit = format(",.1f");
const twoDigits = format(",.2f");
const prefixed = format(".3~s");

export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

function plainUs(value) {
  const size = Math.abs(value);
  if (size >= 100) return grouped(value);
  if (size >= 10) return oneDigit(value);
  return size === 0 ? "0" : twoDigits(value);
}

const minus = (text) => text.replace("-", "−");

// Microseconds without the unit: it stands in the head.
export const us = (value) => (known(value) ? minus(plainUs(value)) : NONE);

export const usSigned = (value) =>
  known(value) ? (value > 0 ? "+" : "") + us(value) : NONE;

export function percent(value) {
  if (!known(value)) return NONE;
  const hundred = value * 100;
  if (hundred === 0) return "0 %";
  if (Math.abs(hundred) < 0.1) return hundred < 0 ? "> −0.1 %" : "< 0.1 %";
  return minus(Math.abs(hundred) < 9.95 ? oneDigit(hundred) : grouped(hundred)) + " %";
}

export const percentSigned = (value) =>
  known(value) ? (value > 0 ? "+" : "") + percent(value) : NONE;

export const count = (value) =>
  known(value) ? (Number.isInteger(value) ? grouped(value) : plainUs(value)) : NONE;

export const times = (value) => (known(value) ? twoDigits(value) + "×" : NONE);

export const range = (low, high) => (known(low) && known(high) && high > low ? `${us(low)} to ${us(high)}` : "");

// Decimal units, as in the queries and the notes.
export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value, unit = 0;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit === 0 || Math.abs(size) >= 100 ? grouped(size) : oneDigit(size)} ${units[unit]}`;
}

export const large = (value, unit = "") =>
  known(value) ? minus(prefixed(value).replace("G", "G").replace(/([kMGTPE])$/, " $1")) + unit : NONE;

// A kernel's name without return type, namespaces everyone has, and arguments.
export function kernelName(text) {
  // Compiled ones differ in their ends.
  if (/^(triton|cpp_fused)/.test(text) && text.length > 60) return `${text.slice(0, 36)}…${text.slice(-23)}`;
  return text
    .replace(/^void /, "")
    .replace(/\(anonymous namespace\)::|at::native::|at::cuda::|std::/g, "")
    .replace(/^([^<(]*)\(.*$/, "$1")
    .replace(/>\s*\([^<>]*\)$/, ">");
}
