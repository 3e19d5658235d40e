// Package semconvtest is empty: only the tests of k8sattributesprocessor import the module whose place it takes.
package semconvtest
